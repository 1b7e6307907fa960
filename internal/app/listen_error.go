package app

import (
	"errors"
	"fmt"
	"syscall"
)

// listenError names the field of an unusable address, and a remedy.
func listenError(name, address string, err error) error {
	advice := ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		advice = "; end the process listening there, such as another relay, or set another port"
	case errors.Is(err, syscall.EACCES):
		advice = "; ports below 1024 need the capability CAP_NET_BIND_SERVICE, as in deploy/systemd; give it, or set a higher port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = "; this machine has no such address; set one of its own"
	}
	return fmt.Errorf("%s.listen %s: %w%s", name, address, err, advice)
}
