"""Programs that use txlog as its users do; the product does not import them."""
