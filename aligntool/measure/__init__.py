"""What a drive does: fio runs, sweeps, unit inference, traces, the estimate of a boot."""
