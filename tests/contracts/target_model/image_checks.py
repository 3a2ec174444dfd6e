"""Images: a lane that left for host memory and came back goes on as if it had stayed."""

from __future__ import annotations

from dataclasses import replace

from tests.contracts.candidates import refuses
from tests.contracts.target_model.rows import SETTINGS, Driver, ModelSubject, driving, texts


def a_restored_lane_goes_on_as_the_exported_one(subject: ModelSubject) -> None:
    """Export changes nothing; the restored lane has the state, the length and a capacity of its own."""
    for seed, prompt in enumerate(texts(subject, 4, 101)):
        sampling = SETTINGS[seed % len(SETTINGS)]
        before, after = texts(subject, 2, 102 + seed, 4, 6)
        with driving(subject, prompt, prompt) as (driver, untouched):
            driver.serial(before)
            untouched.serial(before)
            image = subject.model.export(driver.lane)
            assert image.length == driver.absorbed
            expected = untouched.serial(after, sampling)
            assert driver.serial(after, sampling) == expected
            driver.close()
            lane = subject.model.restore(image, image.length + 64)
            restored = Driver(subject, prompt, lane)
            restored.absorbed = image.length
            assert restored.serial(after, sampling) == expected


def an_image_may_be_restored_more_than_once(subject: ModelSubject) -> None:
    """Each lane goes its own way."""
    (prompt,) = texts(subject, 1, 111)
    mine, theirs = texts(subject, 2, 112, 5, 5)
    with driving(subject, prompt, prompt, prompt) as (driver, one, two):
        image = subject.model.export(driver.lane)
        lanes = [Driver(subject, prompt, subject.model.restore(image, image.length + 32)) for _ in range(2)]
        assert lanes[0].serial(mine) == one.serial(mine)
        assert lanes[1].serial(theirs) == two.serial(theirs)


def a_foreign_or_malformed_image_is_refused(subject: ModelSubject) -> None:
    """By ValueError, and no lane is left behind."""
    (prompt,) = texts(subject, 1, 121, 6, 12)
    model = subject.model
    with driving(subject, prompt) as (driver,):
        image = model.export(driver.lane)
        lanes = model.lanes()
        name, data = image.buffers[0]
        cut = ((name, data[:-1]), *image.buffers[1:])
        room = image.length + 32
        refuses(lambda: model.restore(replace(image, identity="another engine"), room), ValueError)
        refuses(lambda: model.restore(replace(image, buffers=()), room), ValueError)
        refuses(lambda: model.restore(replace(image, buffers=cut), room), ValueError)
        refuses(lambda: model.restore(replace(image, length=-1), room), ValueError)
        assert model.lanes() == lanes
