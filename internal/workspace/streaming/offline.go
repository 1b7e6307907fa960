package streaming

import (
	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// ShapeOf reads the destination out of the API's config; nil: it has none.
func ShapeOf(v management.EventLogStreaming) *Shape { return shapeOf(v) }

// Want is e's desired destination, for callers without the relay's credentials: the user name
// is the relay's own, and any password is taken for right. e must have a desired Stream.
func Want(e config.Environment, shown *Shape) Desired {
	own := credentials.State{Username: credentials.Environment{Project: e.Project, Environment: e.Environment}.Username()}
	if shown != nil {
		own.Current = shown.LastFour
	}
	return desired(e.Stream, own)
}
