package natstest

import (
	"fmt"
	"os"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// RunNode runs a nats-server by its configuration file until a signal ends it. A program
// calls it when it is its own [Options].Command.
func RunNode(config string) error {
	options, err := server.ProcessConfigFile(config)
	if err != nil {
		return fmt.Errorf("read the configuration of nats-server: %w", err)
	}
	srv, err := server.NewServer(options)
	if err != nil {
		return fmt.Errorf("configure nats-server: %w", err)
	}
	srv.ConfigureLogger()
	srv.Start()
	srv.WaitForShutdown()
	return nil
}

// nodeVariable in the environment makes a test's binary one nats-server.
const nodeVariable = "NATSTEST_NODE"

// Main is for the TestMain of a package whose tests start clusters by [Self].
func Main(m *testing.M) {
	if os.Getenv(nodeVariable) == "" {
		os.Exit(m.Run())
	}
	if err := RunNode(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Self returns a command for [Options]: the test's own binary, whose TestMain calls [Main].
func Self(tb testing.TB) []string {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatalf("find the test's binary: %v", err)
	}
	return []string{"env", nodeVariable + "=1", self}
}
