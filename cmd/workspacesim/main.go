// Command workspacesim serves a simulated Workspace Management API, and streams
// simulated event logs to where the API tells it to.
//
// It exits with 0 after SIGTERM or SIGINT, 1 where it cannot serve, 2 on wrong usage.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
