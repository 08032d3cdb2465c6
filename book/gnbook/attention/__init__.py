"""The chapter on attention: how near it is to a mean at the start, and which laws of linear networks it obeys."""
