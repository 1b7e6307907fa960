//go:build !linux

package main

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/spf13/cobra"
)

var errNotPermitted = errors.New("network namespaces need Linux")

type exitError struct{ code int }

func (e *exitError) Error() string { return "it has failed" }

func againInside(context.Context, string, uint64) error { return errNotPermitted }

func newEnterCommand() *cobra.Command { return &cobra.Command{Use: "enter", Hidden: true} }

type namespace struct{ tun *os.File }

func newNamespace([4]byte) (*namespace, error)  { return nil, errNotPermitted }
func hereNamespace([4]byte) (*namespace, error) { return nil, errNotPermitted }
func (*namespace) file() string                 { return "" }

func (*namespace) listen(context.Context, string) (net.Listener, error) {
	return nil, errNotPermitted
}
