"""Over HTTP: who leaves frees everything, a fault ends one request, a hang shows in health and passes."""

from __future__ import annotations

import pytest

from tensorfold.application.settings import EngineSettings
from tests.end_to_end import crowd, fault_scenes, wedges
from tests.end_to_end.fault_scenes import Scene
from tests.end_to_end.full_queue import overflow
from tests.fakes.faulty_model import Site

pytestmark = pytest.mark.slow

LASTING = [scene for scene in fault_scenes.scenes() if scene.first > 1 or scene.site in ("open", "close")]


def test_sixty_clients_that_leave_at_random_points_leave_nothing_behind_and_change_no_reply() -> None:
    seen = crowd.run(60, 12, seed=20)
    assert seen.misses(least=1) == []
    assert seen.left == 60
    assert seen.stayed == 12


def test_a_storm_of_faults_over_a_crowd_changes_no_token_and_leaves_nothing_behind() -> None:
    seen = crowd.run(30, 30, seed=21, storm=True)
    assert seen.misses(least=1) == []
    assert seen.struck > 20
    assert seen.failed < seen.stayed


def test_a_full_queue_refuses_with_retry_after_and_serves_those_inside_and_those_who_come_later() -> None:
    seen = overflow(queue=4, beyond=6)
    assert seen.misses() == []
    assert (seen.served, seen.refused) == (5, 6)


@pytest.mark.parametrize("scene", LASTING, ids=str)
def test_a_fault_under_sixteen_streams_ends_its_own_request_alone(scene: Scene) -> None:
    assert fault_scenes.play(scene).misses() == []


@pytest.mark.parametrize("site", wedges.SITES)
def test_an_engine_that_hangs_turns_health_red_until_it_goes_on(site: Site) -> None:
    wedge = wedges.play(site, EngineSettings(stall_grace_s=0.2))
    assert wedge.wrong == []
    assert wedge.red_s > wedge.cost_s
