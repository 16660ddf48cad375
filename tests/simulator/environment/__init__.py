"""The world around the actors: scheduler, network, store, clocks and faults."""
