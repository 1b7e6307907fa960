package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
)

// witnessFlags are common to the commands of a witness.
type witnessFlags struct{ dir, key string }

func (f *witnessFlags) addTo(cmd *cobra.Command) {
	withFlags(cmd, text(&f.dir, "data-dir", "the `DIR` of the witness's state"), needed{"data-dir"},
		text(&f.key, "key", "the `FILE` of the signing key (default DIR/witness.key)"), check(func() error {
			f.key = cmp.Or(f.key, filepath.Join(f.dir, "witness.key"))
			return nil
		}))
}

func (p Program) newWitness() *cobra.Command {
	var f witnessFlags
	o := app.WitnessOptions{Version: p.build().Version}
	tls, log := config.TLSServer{}, config.Log{}
	cmd := &cobra.Command{
		Use:   "witness",
		Short: "Watch the audit trails of others, and cosign their continuations",
		Long: exits("0 ended cleanly, 1 failed", `Runs a witness for the audit trails of other relays, or for any log of C2SP's
tlog-checkpoint, in the foreground. It signs a log's checkpoint only if it continues the
checkpoint before: a trail set back to an older copy, or shown in two versions, gets no
signature, and its relay raises an alarm. Two teams can watch each other: each runs a
witness, and names the other's in audit.witnesses of its relay.

'witness init' makes the key and the state first. Each --log is the public key of a trail
in trust: /status of its relay shows it. Of a trail with several generations, give the
oldest first. A new generation is never taken by itself: ask its operator why it began,
and then add its key.

The state must not be lost or set back: back it up after stopping, keep it on a local disk, and see
'witness recover'. One process owns the folder.

Other listeners than loopback need TLS: --tls-cert and --tls-key, or --behind-proxy where
TLS ends at a proxy.`),
		Example: `  auditrelay witness init --data-dir /var/lib/auditrelay-witness --name witness.example.com/audit
  auditrelay witness --data-dir /var/lib/auditrelay-witness --listen :8443 \
    --tls-cert tls.crt --tls-key tls.key --log 'other.example.com/auditrelay+3ab0f2c9+AR…'`,
		Args: subcommands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.DataDir, o.KeyFile = f.dir, f.key
			o.Logger = newLogger(cmd.ErrOrStderr(), log)
			return app.RunWitness(cmd.Context(), o)
		},
	}
	f.addTo(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8443", "`IP:PORT` for the relays that ask")
	flags.StringArrayVar(&o.Logs, "log", nil, "the public `KEY` of a trail in trust, NAME+HASH+KEY; may be repeated")
	flags.StringVar(&tls.CertFile, "tls-cert", "", "the certificate's `FILE`; it is read again when it changes")
	flags.StringVar(&tls.KeyFile, "tls-key", "", "the `FILE` of the certificate's key")
	behindProxy := flags.Bool("behind-proxy", false, "TLS ends at a proxy in front of the witness")
	flags.StringVar(&o.Admin.Listen, "admin-listen", "127.0.0.1:9101", "`IP:PORT` of /healthz, /readyz, /metrics and /status; keep it private")
	flags.StringVar(&log.Level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&log.Format, "log-format", "text", "text or json")
	needed{"log"}.addTo(cmd)
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	before(cmd, func() error {
		if tls.CertFile != "" {
			o.TLS = &tls
		}
		return checkWitnessListener(o.Listen, o.TLS != nil || *behindProxy)
	})
	cmd.AddCommand(newWitnessInit(), newWitnessRecover())
	return cmd
}

// checkWitnessListener refuses an address open to others without TLS.
func checkWitnessListener(listen string, tls bool) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return errors.New("--listen must be IP:PORT, localhost:PORT or :PORT")
	}
	if !tls && !config.IsLoopback(host) {
		return errors.New("--listen is reachable from outside without TLS; give --tls-cert and --tls-key, or --behind-proxy, or listen on 127.0.0.1")
	}
	return nil
}

func newWitnessInit() *cobra.Command {
	var f witnessFlags
	var name string
	return command(&cobra.Command{
		Use:   "init",
		Short: "Make a witness's key and empty state",
		Long: exits("0 success, 1 failure", `Makes the signing key of a new witness, where there is none, and its empty state, and
prints the public key. Give this key to the operators of the relays: it goes into
audit.witnesses. It refuses to replace state: a witness without memory may sign another
history than before.`),
		Example: "  auditrelay witness init --data-dir /var/lib/auditrelay-witness --name witness.example.com/audit",
	}, alone(""), func(cmd *cobra.Command, _ []string, _ alone) error {
		if err := durable.MakeDir(f.dir); err != nil {
			return err
		}
		key, err := witness.LoadKey(f.key)
		if errors.Is(err, fs.ErrNotExist) {
			key, err = witness.GenerateKey(f.key, name)
		}
		if err != nil {
			return err
		}
		if err := witness.Create(app.WitnessState(f.dir), key); err != nil {
			return err
		}
		return say(cmd.OutOrStdout(), "%s", key.Public())
	}, &f, text(&name, "name", "the witness's `NAME`: a domain and path of yours, without a scheme"), needed{"name"})
}

func newWitnessRecover() *cobra.Command {
	var f witnessFlags
	return command(&cobra.Command{
		Use:   "recover FILE…",
		Short: "Make a witness's lost state again",
		Long: exits("0 success, 1 failure", `Makes the lost state of a stopped witness again, from checkpoints with the witness's own
signature: the newest one of each log, as its relay serves it at /tlog/latest/checkpoint. Of
each log the largest counts. Existing state goes forward only.

A dishonest log can show an older checkpoint than the newest cosigned one. So take it
from independent readers too, as from a sink's trail.checkpoint events. Without any
checkpoint of a log, make a new witness with a new key instead.`),
		Example: `  curl -so a.checkpoint -H @token.header https://relay.example.com/tlog/latest/checkpoint
  auditrelay witness recover --data-dir /var/lib/auditrelay-witness a.checkpoint`,
		Args: cobra.MinimumNArgs(1),
	}, alone(""), func(cmd *cobra.Command, args []string, _ alone) error {
		key, err := witness.LoadKey(f.key)
		if err != nil {
			return err
		}
		var checkpoints []string
		for _, file := range args {
			text, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("read checkpoint: %w", err)
			}
			checkpoints = append(checkpoints, string(text))
		}
		logs, err := app.RecoverWitness(f.dir, key, checkpoints)
		for _, l := range logs {
			if err == nil {
				err = say(cmd.OutOrStdout(), "%s: %d entries", printable(l.Origin), l.Size)
			}
		}
		return err
	}, &f)
}
