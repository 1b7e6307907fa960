package ingest

import (
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/relay"
)

// Sample is the event that a push of body to env makes, with the time now and no labels. For
// a body without an id of its own, the id differs from a running relay's: this key is public.
func Sample(env credentials.Environment, body []byte, now time.Time) relay.Event {
	source := relay.SourceOf(env.Project, env.Environment)
	e := record.Entry{Time: now.UnixNano(), Body: body}
	kind := record.ContentType(body)
	x := newIDs(secret.New("a sample"))
	x.identify(&e, source, kind == record.ContentJSON)
	return relay.Event{
		ID: string(e.ID), Source: source, Type: string(e.Type), Time: now, Received: now, ContentType: kind,
		Project: env.Project, Environment: env.Environment, Body: body,
	}
}
