"""Programs that use txlog as its users do; the product imports nothing of them."""
