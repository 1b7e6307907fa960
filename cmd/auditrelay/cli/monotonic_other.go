//go:build !linux

package cli

// monotonicMicros is 0: no service manager here asks for it.
func monotonicMicros() int64 { return 0 }
