package streaming

import (
	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/credentials"
	"github.com/auditrelay/auditrelay/internal/management"
)

// ShapeOf reads the destination out of a config that the API shows; nil: it has none.
func ShapeOf(v management.EventLogStreaming) *Shape { return shapeOf(v) }

// Want is where e is to stream to, as far as it is known without the relay's credentials:
// the user name is the relay's own, and any password is taken for right. e must have a
// Stream that desires something.
func Want(e config.Environment, shown *Shape) Desired {
	own := credentials.State{Username: credentials.Environment{Project: e.Project, Environment: e.Environment}.Username()}
	if shown != nil {
		own.Current = shown.LastFour
	}
	return desired(e.Stream, own)
}
