"""A cluster in one process, on virtual time, from one seed. See `loop`, `runtime`, `faults`."""
