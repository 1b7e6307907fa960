package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/migration"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// rowsFlags name a file of rows.
type rowsFlags struct {
	from      string
	passwords outputFlag
}

func (f *rowsFlags) about() string { return "" }

func (f *rowsFlags) addTo(cmd *cobra.Command) {
	f.passwords.allowed = []string{migration.Shared, migration.Scoped}
	withFlags(cmd, text(&f.from, "from", "the `FILE` of rows"), needed{"from"},
		parsed(&f.passwords, "passwords", "`HOW` the project has passwords: shared by all organizations of an email address, or scoped to each member"))
}

// open checks the file, and reads what was answered so far.
func (f *rowsFlags) open(*cobra.Command) (*migration.File, error) {
	return migration.Open(f.from, f.passwords.value, false)
}

func newMigratePlan() *cobra.Command {
	return question("migrate plan", &rowsFlags{}, forms("table", "json"), func(_ *cobra.Command, file *migration.File, _ []string) (*migration.Plan, error) {
		return &file.Plan, nil
	}, printMigrationPlan)
}

// dualWrite is for files with too many users.
const dualWrite = `With more than %s users (%s), one export and import is not the way: use dual-write plus backfill.
First let your application write each change to both providers, then run this file as the
backfill. The relay sees both in the event log: health explains the backfill's events while
it runs, and learns the dual writes as the environment's rhythm.`

func printMigrationPlan(p *page, plan *migration.Plan) {
	p.row("TYPE", "ROWS", "REQUESTS LEFT")
	for _, kind := range migration.Types {
		p.row(kind, plan.Rows[kind], plan.Calls[kind])
	}
	p.line("%d requests, one at a time, organizations first: at least %s, at most %d in a second (%s)",
		plan.Total, spanText(plan.Seconds), plan.Flavour.Limit, plan.Flavour.Name)
	if plan.Passwords != "" {
		p.line("passwords are sent as %s ones: see that the project has them so, since this cannot be changed once it has active passwords", plan.Passwords)
	}
	if max(plan.Rows[migration.TypeMember], plan.Rows[migration.TypeSession]) > plan.Flavour.Users {
		p.line(dualWrite, numberText(float64(plan.Flavour.Users)), plan.Flavour.Name)
	}
}

func newMigrateStatus() *cobra.Command {
	return question("migrate status", &rowsFlags{}, forms("table", "json"), func(_ *cobra.Command, file *migration.File, _ []string) (*migration.Result, error) {
		result, err := file.Count(io.Discard)
		if err == nil {
			err = errTrouble.when(result.Open > 0)
		}
		return result, err
	}, printMigrationResult)
}

func printMigrationResult(p *page, result *migration.Result) {
	p.row("OUTCOME", "ROWS")
	for _, o := range migration.Outcomes {
		p.row(o, result.Outcomes[o])
	}
	for _, kind := range slices.Sorted(maps.Keys(result.Refusals)) {
		p.line("%d refused as %s", result.Refusals[kind], kind)
	}
}

// migrateRun is what a run is asked for.
type migrateRun struct {
	rows                     rowsFlags
	of                       console.OfEnvironment
	url, project, secretFile string
	again                    bool
	consent                  consentFlags
}

func (p Program) newMigrateRun() *cobra.Command {
	var m migrateRun
	return command("migrate run", p.configured(), func(cmd *cobra.Command, _ []string, cfg *config.Config) error {
		api, err := m.api(cmd, cfg)
		if err != nil {
			return err
		}
		return m.alone(cmd, cfg, &migration.Run{API: api, Project: m.project})
	}, &m.rows, &m.consent, text(&m.url, "api-url", "the `URL` of the API for migrations"), text(&m.project, "project-id", "the project's `ID` for that API"),
		text(&m.secretFile, "secret-file", "the project's secret: a `FILE`, or - for standard input"),
		onOff(&m.again, "refused-too", "send refused rows again that are as they were"), needed{"api-url", "project-id", "secret-file"},
		takes(ofEnvironment(&m.of, exactly(1, "PROJECT/ENVIRONMENT, such as shop/live"))))
}

// api makes the client. The workspace's management key is refused before anything is sent.
func (m *migrateRun) api(cmd *cobra.Command, cfg *config.Config) (api *management.Client, err error) {
	key, err := readSecret(cmd, m.secretFile)
	if err != nil {
		return nil, err
	}
	if w := cfg.Workspace; w != nil && (m.project == w.KeyID || key == w.Secret) {
		return nil, errors.New("this is the workspace's management key, which is never sent to the API for migrations: give the project's id and secret")
	}
	if !slices.ContainsFunc(cfg.Environments, func(e config.Environment) bool { return e.Project == m.of.Project && e.Environment == m.of.Environment }) {
		return nil, fmt.Errorf("%s/%s is not in the configuration", m.of.Project, m.of.Environment)
	}
	// The run keeps the rate. One at a time, the client's own limit is never reached.
	api, err = management.New(management.Options{BaseURL: m.url, KeyID: m.project, Secret: key, RequestsPerSecond: 1000, AtOnce: 1})
	if err != nil {
		err = fmt.Errorf("--api-url or --project-id: %w", err)
	}
	return api, err
}

// alone shows the plan, and runs it while no other process runs one: the limit is the project's.
func (m *migrateRun) alone(cmd *cobra.Command, cfg *config.Config, run *migration.Run) error {
	dir := filepath.Join(cfg.DataDir, "migration")
	if err := durable.MakeDir(dir); err != nil {
		return err
	}
	lock, err := durable.Lock(dir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // as the end of the process does
	run.File, err = migration.Open(m.rows.from, m.rows.passwords.value, m.again)
	if err == nil {
		err = run.File.IsOf(m.project)
	}
	if err != nil {
		return err
	}
	if err := show(cmd.ErrOrStderr(), &run.File.Plan, printMigrationPlan); err != nil {
		return err
	}
	if err := confirm(cmd, m.consent.yes, "Send them?"); err != nil {
		return err
	}
	return m.onRecord(cmd, cfg, run)
}

// enterWithin bounds the wait for a relay that is starting again.
const enterWithin = time.Minute

// onRecord runs between two entries of the trail. Without the first one, nothing is sent. A crash
// before the second leaves the first one alone, and the next run enters two of its own.
func (m *migrateRun) onRecord(cmd *cobra.Command, cfg *config.Config, run *migration.Run) error {
	client := console.NewClient(cfg.DataDir)
	client.Person = thisPerson()
	note := run.Starts(m.consent.reason)
	if err := client.EnterMigration(cmd.Context(), console.EnterMigration{OfEnvironment: m.of, Note: note}); err != nil {
		return fmt.Errorf("enter the start into the audit trail (nothing was sent): %w", err)
	}
	shown := newProgress(cmd.ErrOrStderr())
	total := run.File.Plan.Total
	run.Report = func(done int, left time.Duration, failing string) {
		unit := "rows, " + spanText(left.Seconds()) + " left"
		if failing != "" {
			unit += ", waiting for the API: " + printable(failing)
		}
		shown.report(&console.Progress{Done: uint64(done), Total: uint64(total), Unit: unit})
	}
	result, err := run.Do(cmd.Context())
	shown.end()
	if result == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), enterWithin)
	defer cancel()
	log := newLogger(cmd.ErrOrStderr(), config.Log{Level: "warn", Format: "text"})
	entered := retry.Insist(ctx, log, "entering the end into the audit trail", func(error) bool { return false }, func() error {
		return client.EnterMigration(ctx, console.EnterMigration{OfEnvironment: m.of, Note: note.Ends(result)})
	})
	printed := show(cmd.OutOrStdout(), result, printMigrationResult)
	if result.Lost > 0 || result.Open > 0 {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "the answers of %d rows were lost; what is not done, and why: %s\n", result.Lost, run.File.Refused())
	}
	return cmp.Or(errors.Join(err, entered, printed), errTrouble.when(result.Open > 0))
}
