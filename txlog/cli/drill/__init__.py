"""`txlog drill`: a job that is killed repeatedly, and the proof that nothing was lost."""
