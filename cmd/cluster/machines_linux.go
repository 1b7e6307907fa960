package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// errNotPermitted means that this machine makes no network namespaces for this user.
var errNotPermitted = errors.New("network namespaces are not permitted here")

// exitError is the end of a process that has said why.
type exitError struct{ code int }

func (e *exitError) Error() string { return "exit status " + strconv.Itoa(e.code) }

// againInside runs this program in a network namespace of its own, where it may do as it
// likes: nothing of this machine's network is touched, and nothing is left of it.
func againInside(ctx context.Context, dir string, seed uint64) error {
	if err := tryNamespace(); err != nil {
		return fmt.Errorf("%w: %w", errNotPermitted, err)
	}
	runtime.LockOSThread()                                                                                // the child dies with this thread
	cmd := exec.Command("/proc/self/exe", append(os.Args[1:], "--seed", strconv.FormatUint(seed, 10))...) //nolint:noctx // it gets the signals, and cleans up
	cmd.Env = append(os.Environ(), dirVariable+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = inside()
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", errNotPermitted, err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	err := cmd.Wait()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return &exitError{ended.ExitCode()}
	}
	return err
}

// inside are the attributes of a process with a network of its own. An ordinary user is given
// a user namespace for it.
func inside() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if id := os.Geteuid(); id != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return a
}

// tryNamespace finds out whether all of it is permitted.
func tryNamespace() error {
	tun, err := os.OpenFile(tunDevice, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_ = tun.Close()
	cmd := exec.Command("/proc/self/exe", "--help") //nolint:noctx // it ends at once
	cmd.SysProcAttr = inside()
	return cmd.Run()
}

const tunDevice = "/dev/net/tun"

// newEnterCommand runs a program in the network namespace of a file.
func newEnterCommand() *cobra.Command {
	return &cobra.Command{
		Use: "enter FILE PROGRAM [ARG…]", Hidden: true, DisableFlagParsing: true,
		Short: "Run a program in a network namespace",
		RunE: func(_ *cobra.Command, args []string) error {
			runtime.LockOSThread() // the program is this thread's
			if err := setNamespace(args[0]); err != nil {
				return err
			}
			// It is the thread that dies with the parent, and this one may not be the first.
			if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
				return err
			}
			return syscall.Exec(args[1], args[1:], os.Environ())
		},
	}
}

func setNamespace(file string) error {
	ns, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
}

// namespace is a network namespace with one interface, whose packets this process reads and
// writes.
type namespace struct {
	ns  *os.File // keeps it while no process is in it
	tun *os.File
}

// newNamespace makes one whose interface has an address.
func newNamespace(address [4]byte) (n *namespace, err error) {
	n = &namespace{}
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		return n.open(address)
	})
	return n, err
}

// hereNamespace is the one that this process is in.
func hereNamespace(address [4]byte) (n *namespace, err error) {
	n = &namespace{}
	return n, n.open(address)
}

func (n *namespace) open(address [4]byte) (err error) {
	if n.ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	n.tun, err = openInterface(address)
	return err
}

// onThread runs do on a thread that ends with it.
func onThread(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		done <- do()
	}()
	return <-done
}

// inside runs do on a thread that is in the namespace.
func (n *namespace) inside(do func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return do()
	})
}

// file is a name of the namespace for other processes.
func (n *namespace) file() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.ns.Fd()) }

func (n *namespace) listen(ctx context.Context, address string) (l net.Listener, err error) {
	err = n.inside(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(ctx, "tcp4", address)
		return err
	})
	return l, err
}

const (
	interfaceName = "net0"
	interfaceMTU  = 9000
)

// openInterface makes the interface of the thread's namespace.
func openInterface(address [4]byte) (*os.File, error) {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", tunDevice, err)
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(socket) }()
	for _, step := range []struct {
		on      int
		request uint
		name    string
		set     func(*unix.Ifreq) error
	}{
		{socket, unix.SIOCSIFFLAGS, "lo", func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP); return nil }},
		{fd, unix.TUNSETIFF, interfaceName, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI); return nil }},
		{socket, unix.SIOCSIFADDR, interfaceName, func(r *unix.Ifreq) error { return r.SetInet4Addr(address[:]) }},
		{socket, unix.SIOCSIFNETMASK, interfaceName, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) }},
		{socket, unix.SIOCSIFMTU, interfaceName, func(r *unix.Ifreq) error { r.SetUint32(interfaceMTU); return nil }},
		{socket, unix.SIOCSIFFLAGS, interfaceName, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP); return nil }},
	} {
		r, err := unix.NewIfreq(step.name)
		if err == nil {
			err = step.set(r)
		}
		if err == nil {
			err = unix.IoctlIfreq(step.on, step.request, r)
		}
		if err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("set up the interface %s: request %#x: %w", step.name, step.request, err)
		}
	}
	// Not before: what is no interface yet is never ready, and the runtime asks only once.
	return os.NewFile(uintptr(fd), tunDevice), nil
}
