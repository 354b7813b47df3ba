"""Kernels that do in one launch what the library's modules do in many, each tried against those before it is used."""
