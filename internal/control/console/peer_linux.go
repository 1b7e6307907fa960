package console

import (
	"net"
	"os/user"
	"strconv"
	"syscall"
)

// peerOf asks the kernel whose process opened a connection to the socket (SO_PEERCRED): its
// user id when it connected, and the name of this id on this machine. A process cannot
// choose what is told of it.
func peerOf(c net.Conn) (name string, uid *uint32) {
	unix, ok := c.(*net.UnixConn)
	if !ok {
		return "", nil
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return "", nil
	}
	var cred *syscall.Ucred
	failed := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if failed != nil || err != nil {
		return "", nil
	}
	id := strconv.FormatUint(uint64(cred.Uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username, &cred.Uid
	}
	return "uid " + id, &cred.Uid
}
