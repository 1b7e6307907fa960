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
	cmd := group("witness", newWitnessInit(), newWitnessRecover())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.DataDir, o.KeyFile = f.dir, f.key
		o.Logger = newLogger(cmd.ErrOrStderr(), log)
		return app.RunWitness(cmd.Context(), o)
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
	return command("witness init", alone(""), func(cmd *cobra.Command, _ []string, _ alone) error {
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
	return command("witness recover", alone(""), func(cmd *cobra.Command, args []string, _ alone) error {
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
	}, &f, takes(cobra.MinimumNArgs(1)))
}
