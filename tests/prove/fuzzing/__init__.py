"""The parts of the fuzzing proof: what is sent, how answers are read and judged, and the server they go to."""
