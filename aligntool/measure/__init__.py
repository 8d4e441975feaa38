"""Measure drives: fio runs, sweeps, unit inference, traces, the estimate of a boot."""
