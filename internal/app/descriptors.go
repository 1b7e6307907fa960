package app

import (
	"syscall"

	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
)

// The need for descriptors besides the connections of clients.
const (
	ownDescriptors     = 64 // the journal's and the trail's files, the console, the API's connections
	adminConnections   = 32 // and of the trail's own listener, likewise
	sinkDescriptors    = 16 // of one delivery: its connections and files
	fewestConnections  = 16
	mostConnections    = 4096 // unless the configuration asks for more
	addressConnections = 2    // one address may have the total divided by this
)

// openFiles is the process's limit of open files. Go has raised the soft
// limit to the hard one when the process started.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // the usual least
	}
	return int(min(limit.Cur, 1<<30))
}

// ingestDoor bounds the connections of clients: the configured number, as far as
// descriptors are left for everything else.
func (r *process) ingestDoor(files int) connlimit.Options {
	reserve := ownDescriptors + adminConnections*2 // the trail's listener has as many
	for _, s := range r.cfg().Sinks {
		reserve += sinkDescriptors * s.Parallel
	}
	asked, room := r.cfg().Ingest.Connections, max(files-reserve, fewestConnections)
	o := connlimit.Options{Name: ingestListener, Total: asked.Total, PerAddress: asked.PerAddress}
	if o.Total == 0 {
		o.Total = min(room, mostConnections)
	}
	if o.Total > room {
		r.log.Warn("the limit of open files leaves less room than ingest.connections.total asks for; raise it (ulimit -n, LimitNOFILE)",
			"asked", o.Total, "connections", room, "open_files", files, "reserved", reserve)
		o.Total = room
	}
	if files < reserve+fewestConnections {
		r.log.Warn("the limit of open files is too low for this configuration; raise it (ulimit -n, LimitNOFILE)",
			"open_files", files, "needed", reserve+fewestConnections)
	}
	if o.PerAddress == 0 && !r.cfg().Ingest.BehindProxy {
		o.PerAddress = max(o.Total/addressConnections, 1)
	}
	return o
}
