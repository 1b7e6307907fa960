package cli

import (
	"log/slog"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// warnOfCgo warns of a binary that may abort where a static one holds: the threads of a process with
// cgo cannot be made under a limit of its address space, and the C library then ends it.
func warnOfCgo(log *slog.Logger, info *debug.BuildInfo) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &limit); err != nil || limit.Cur == unix.RLIM_INFINITY || info == nil {
		return
	}
	for _, s := range info.Settings {
		if s.Key == "CGO_ENABLED" && s.Value == "1" {
			log.Warn("this binary was built with cgo, and the address space of the process is limited (ulimit -v, RLIMIT_AS): it may abort under load; take a release, or build it with CGO_ENABLED=0", "limit", limit.Cur)
		}
	}
}
