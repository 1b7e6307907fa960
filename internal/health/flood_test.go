package health

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/migration"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// A migration's events are explained until a while after its end, and teach nothing.
func TestTheFloodOfAMigration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trail := trailtest.New(t)
		s := newScene(t, time.Second, func(o *Options) { o.Trail = trail })
		defer func() { s.stop() }()
		s.pass(3*time.Hour, steady(10*time.Second), nil)
		usual := s.keeper.watches[0].Model.Expected(time.Now(), time.Now().Add(time.Hour))
		enter := func(kind string, note migration.Note) {
			_, err := trail.Append(t.Context(), audit.Entry{
				Type: kind, Project: live.Project, Environment: live.Environment, Subject: migration.Subject, Time: time.Now(),
				Detail: jsontext.Encode(struct {
					migration.Note
					Person audit.Person `json:"person"`
				}{note, audit.Person{User: "ada", Host: "desk"}}),
			})
			require.NoError(t, err)
		}
		enter("migration.started", migration.Note{Until: time.Now().Add(time.Hour)})
		time.Sleep(20 * time.Second)
		for range 600 {
			s.push(500)
			time.Sleep(time.Second)
		}
		now := s.now()
		assert.Equal(t, Flowing, now.State)
		assert.Contains(t, now.Reason, "; a migration by ada@desk, at ")
		assert.InDelta(t, usual, s.keeper.watches[0].Model.Expected(time.Now(), time.Now().Add(time.Hour)), usual/2, "it teaches nothing")
		enter("migration.ended", migration.Note{Until: time.Now().Add(10 * time.Minute)})
		s.pass(5*time.Minute, steady(10*time.Second), nil)
		assert.Contains(t, s.now().Reason, "a migration by ada@desk")
		s.pass(6*time.Minute, steady(10*time.Second), nil)
		assert.NotContains(t, s.now().Reason, "a migration by")
	})
}
