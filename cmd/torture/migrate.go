package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/migration"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// migrateKills is how often the scenario migrate kills the command.
const migrateKills = 10

// planted is in each hash of the file of rows; nothing but that file may have it.
const planted = "PLANTED"

// mover is a relay, and a command that is killed again and again while it moves users.
type mover struct {
	t         *trial
	workspace *rig.Workspace
	relay     *rig.Relay
	rows      string // the file
	secret    string // the file with the project's secret
	wanted    []string
	explained bool // health has explained the flood
}

// migrated moves users into a project whose API throttles, fails and loses answers, while the
// command is killed.
func migrated(ctx context.Context, t *trial) error {
	m := &mover{t: t, rows: filepath.Join(t.dir, "users.jsonl"), secret: filepath.Join(t.dir, "project.secret")}
	if err := m.start(ctx); err != nil {
		return err
	}
	defer m.workspace.Close()
	defer m.relay.Close()
	if err := m.underFaults(ctx); err != nil {
		return err
	}
	inOrder := slices.IsSortedFunc(m.workspace.Migrated().Rows, func(a, b string) int {
		return slices.Index(migration.Types, strings.Fields(a)[0]) - slices.Index(migration.Types, strings.Fields(b)[0])
	})
	if !inOrder {
		t.row.wrong = append(t.row.wrong, "a row came before one of an earlier type")
	}
	if err := m.mend(ctx); err != nil {
		return err
	}
	m.count()
	if err := m.relay.Process().Stop(time.Minute); err != nil {
		return err
	}
	return m.search()
}

func (m *mover) start(ctx context.Context) (err error) {
	if err := m.write(); err != nil {
		return err
	}
	if m.workspace, err = rig.StartWorkspace(ctx, workspacesim.Options{Seed: m.t.seed, Projects: 1}); err != nil {
		return err
	}
	if m.relay, err = rig.NewRelay(ctx, m.t.binary, filepath.Join(m.t.dir, "relay")); err != nil {
		return err
	}
	config := fmt.Sprintf("data_dir: %q\n", m.relay.DataDir()) + m.workspace.Config(m.relay.Ingest, m.relay.Admin) +
		fmt.Sprintf("sinks: [{name: file, file: {path: %q}}]\n", filepath.Join(m.t.dir, "events.jsonl"))
	if err := m.relay.Start(ctx, config, time.Minute, m.workspace.Env()); err != nil {
		return err
	}
	return m.workspace.SetFaults(workspacesim.Faults{ErrorRates: map[int]float64{429: 0.05, 500: 0.02}, CutRate: 0.01, PathContains: "/v1/b2b/"})
}

// write makes the file: a hundred rows have one organization, and the others are members, each with
// a password.
func (m *mover) write() error {
	var text bytes.Buffer
	organizations := max(1, m.t.rows/100)
	members := (m.t.rows - organizations) / 2
	for i := range members {
		slug, email := fmt.Sprintf("org-%d", i%organizations), fmt.Sprintf("person.%d@example.com", i)
		fmt.Fprintf(&text, `{"type":"member","organization_slug":%q,"email_address":%q}`+"\n", slug, email)
		fmt.Fprintf(&text, `{"type":"password","organization_slug":%q,"email_address":%q,"hash_type":"bcrypt","hash":"$2b$12$%s%046d"}`+"\n", slug, email, planted, i)
		m.wanted = append(m.wanted, "member "+slug+" "+email, "password "+slug+" "+email)
	}
	for i := range organizations {
		fmt.Fprintf(&text, `{"type":"organization","organization_name":"Org","organization_slug":"org-%d"}`+"\n", i)
		m.wanted = append(m.wanted, fmt.Sprintf("organization org-%d", i))
	}
	return errors.Join(os.WriteFile(m.rows, text.Bytes(), 0o600), os.WriteFile(m.secret, []byte(workspacesim.DemoProjectSecret), 0o600))
}

func (m *mover) command(again ...string) rig.Command {
	env := m.workspace.Environments()[0]
	args := []string{
		m.t.binary, "migrate", "run", env.Project + "/" + env.Environment, "--from", m.rows, "--passwords", "scoped", "--config", filepath.Join(m.t.dir, "relay", "relay.yaml"),
		"--api-url", m.workspace.URL, "--project-id", workspacesim.DemoProjectID, "--secret-file", m.secret, "--yes", "--reason", "CHG-21",
	}
	return rig.Command{
		Name: "the migration", Args: append(args, again...), Log: filepath.Join(m.t.dir, "migrate.log"),
		Env: []string{m.workspace.Env()},
	}
}

// underFaults runs the command, kills it at random moments, and lets the last run end.
func (m *mover) underFaults(ctx context.Context) error {
	rng := m.t.random()
	for range migrateKills {
		process, err := m.command().Start()
		if err != nil {
			return err
		}
		from := m.workspace.Migrated().Requests
		until := from + 1 + rng.IntN(max(2, 2*len(m.wanted)/migrateKills))
		_ = rig.Until(ctx, time.Hour, "more requests", func() bool { // it may have ended
			return m.workspace.Migrated().Requests >= until
		}, process)
		m.look(ctx)
		process.Kill()
		m.t.row.rounds++
		m.t.progress("killed after %d requests", m.workspace.Migrated().Requests)
	}
	return m.toItsEnd(ctx)
}

// toItsEnd runs the command to its end; that some rows are not done is no failure of it.
func (m *mover) toItsEnd(ctx context.Context) error {
	process, err := m.command().Start()
	if err != nil {
		return err
	}
	select {
	case <-process.Exited():
	case <-ctx.Done():
		process.Kill()
		return ctx.Err()
	}
	if tail := process.Tail(); !strings.Contains(tail, "OUTCOME") {
		return process.Unexpected()
	}
	return nil
}

// look asks the relay's health about the flood.
func (m *mover) look(ctx context.Context) {
	_, text, err := m.relay.Ask(ctx, "/status")
	m.explained = m.explained || err == nil && strings.Contains(text, "explains far more events than usual")
}

// mend does what a person does: the ids of organizations whose answers were lost are put into
// their rows.
func (m *mover) mend(ctx context.Context) error {
	text, err := os.ReadFile(m.rows)
	if err != nil {
		return err
	}
	refused, err := os.ReadFile(m.rows + ".migration/refused.jsonl")
	if err != nil {
		return err
	}
	ids, mended, named := m.workspace.Migrated().IDs, 0, 0
	for line := range bytes.Lines(refused) {
		var v struct {
			Outcome string
			Row     struct {
				Type string
				Slug string `json:"organization_slug"`
			}
		}
		if err := json.Unmarshal(line, &v); err != nil {
			return err
		}
		named++
		if v.Row.Type == migration.TypeOrganization {
			mended++
			old := fmt.Sprintf(`"organization_name":"Org","organization_slug":%q}`, v.Row.Slug)
			now := fmt.Sprintf(`"organization_id":%q,`, ids[v.Row.Slug]) + old
			text = bytes.Replace(text, []byte(old), []byte(now), 1)
		}
	}
	m.t.remark("%d rows named as not done, of which a person mended %d organizations", named, mended)
	if err := os.WriteFile(m.rows, text, 0o600); err != nil {
		return err
	}
	return m.toItsEnd(ctx)
}

// count compares the simulator with the file.
func (m *mover) count() {
	seen, row := m.workspace.Migrated(), &m.t.row
	row.acknowledged, row.delivered = uint64(len(m.wanted)), int64(len(seen.Rows))
	there := map[string]bool{}
	for _, r := range seen.Rows {
		if there[r] {
			row.duplicates++
		}
		there[r] = true
	}
	for _, r := range m.wanted {
		if !there[r] {
			row.lost++
		}
	}
	m.t.remark("%d requests, %d of them answered as duplicates after a lost answer, at most %d in a second, %d too many", seen.Requests, seen.Duplicates, seen.Most, seen.TooMany)
	if seen.Most > migration.B2B.Limit || seen.TooMany > 0 {
		row.wrong = append(row.wrong, "the rate was above the limit")
	}
	if !m.explained && len(m.wanted) > 1000 {
		row.wrong = append(row.wrong, "health did not explain the flood")
	}
}

// search looks for secrets and personal data in all that was written.
func (m *mover) search() error {
	entries := 0
	err := filepath.WalkDir(m.t.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path == m.rows || path == m.secret {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		secrets := []string{planted, workspacesim.DemoProjectSecret}
		if !strings.Contains(path, ".migration") {
			secrets = append(secrets, "person.")
		}
		for _, s := range secrets {
			if bytes.Contains(text, []byte(s)) {
				m.t.row.wrong = append(m.t.row.wrong, fmt.Sprintf("%s has %q", path, s))
			}
		}
		if strings.HasSuffix(path, "events.jsonl") {
			for line := range bytes.Lines(text) {
				if bytes.Contains(line, []byte(`"type":"migration.`)) {
					entries++
				}
			}
		}
		return nil
	})
	if entries < migrateKills+2 {
		m.t.row.wrong = append(m.t.row.wrong, fmt.Sprintf("the sink has %d entries of the runs", entries))
	}
	m.t.remark("%d entries of the runs at the sink", entries)
	return err
}
