package main

func busyWeeks(*stage) error   { return nil }
func quietNights(*stage) error { return nil }
