// Command proof has the audit trail proven by others: it makes a long trail, exports it,
// verifies it with our command and with foreign ones, and tampers with it. Then a relay takes
// many events, and it proves events, spans and the trail that the relay serves. It prints a
// table. If a foreign tool or registry cannot be reached, the step is SKIPPED, with the reason.
// The exit code is 1 if anything failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	entries := flag.Int("entries", 100_000, "how many entries the trail has")
	proofs := flag.Int("proofs", 1000, "how many of them are proven")
	cases := flag.Int("cases", 1000, "how many cases of tampering")
	events := flag.Int("events", 1_000_000, "how many events the journal has, at least 1000")
	dir := flag.String("dir", "", "a new folder for the trail (default: a temporary one, removed)")
	python := flag.String("python", findPython(), "a Python from 3.12 on, for aics-tlog")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	made := *dir
	if made != "" {
		if err := os.MkdirAll(made, 0o700); err != nil {
			fmt.Fprintln(os.Stderr, "proof:", err)
			os.Exit(1)
		}
	} else {
		var err error
		if made, err = os.MkdirTemp("", "auditrelay-proof-"); err != nil {
			fmt.Fprintln(os.Stderr, "proof:", err)
			os.Exit(1)
		}
		defer func() { _ = os.RemoveAll(made) }()
	}
	s := &show{ctx: ctx, dir: made, binary: filepath.Join(made, "auditrelay"), interpreter: *python, entries: *entries, proofs: *proofs, cases: *cases, events: max(*events, 1000)}
	s.run()
	if s.print(); s.failed > 0 {
		stop()
		os.Exit(1) //nolint:gocritic // the folder stays, to look at
	}
}

// findPython is the newest working Python with a name of its own, or one of pyenv's.
func findPython() string {
	names := []string{"python3.14", "python3.13", "python3.12"}
	if root, err := exec.Command("pyenv", "root").Output(); err == nil { //nolint:noctx // at once
		more, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(root)), "versions", "3.1[2-9].*", "bin", "python3"))
		names = append(names, more...)
	}
	for _, name := range names {
		if exec.Command(name, "--version").Run() == nil { //nolint:noctx // at once
			return name
		}
	}
	return "python3"
}
