"""Who may serve a request, and in what order: pure, without clock, I/O or log (RT-1)."""
