package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

// reloads are what the scenario needs to edit a relay's configuration under load.
type reloads struct {
	*scene
	client   *console.Client
	receiver *tlsReceiver
	base     string         // the configuration that it begins with
	edits    map[string]int // by sink, how often it was changed
	applied  int
	slowest  time.Duration
}

// reloaded edits the configuration under load: sinks are added, changed and removed, one of them
// hangs, a certificate is replaced, environments come and go, and some edits are broken.
func reloaded(ctx context.Context, t *trial) error {
	s, err := t.newScene(ctx, setting{rate: 100})
	if err != nil {
		return err
	}
	defer s.close()
	r := &reloads{scene: s, client: console.NewClient(s.dataDir), edits: map[string]int{}}
	if r.receiver, err = newTLSReceiver(ctx, filepath.Join(t.dir, "ca.crt")); err != nil {
		return err
	}
	defer r.receiver.close()
	if err := r.begin(); err != nil {
		return err
	}
	if err := s.startReady(ctx); err != nil {
		return err
	}
	p := s.startPusher(ctx, t.rate)
	defer p.end()
	steps := []func(context.Context, int) error{r.change, r.hang, r.add, r.remove, r.certificate, r.environment, r.broken, r.signal}
	for rounds := 2 * t.rounds; t.row.rounds < rounds; t.row.rounds++ {
		if err := s.more(ctx, p, pushEvents); err != nil {
			return err
		}
		if err := steps[t.row.rounds%len(steps)](ctx, t.row.rounds); err != nil {
			return fmt.Errorf("reload %d: %w", t.row.rounds+1, err)
		}
		if t.row.rounds%40 == 39 {
			t.progress("reloaded %d times: %s", t.row.rounds+1, p)
		}
	}
	p.stop(s)
	t.remark("%d applied, the slowest in %s; the changed certificate was seen %d times; %s", r.applied, r.slowest.Round(10*time.Millisecond), r.receiver.renewals, p)
	if err := errors.Join(p.verdict(), s.settle(ctx)); err != nil {
		return err
	}
	return r.fewAgain()
}

// begin adds a sink that speaks TLS to the configuration.
func (r *reloads) begin() error {
	text, err := os.ReadFile(r.config)
	if err != nil {
		return err
	}
	hook := fmt.Sprintf("  - {name: hook, timeout: 5s, webhook: {url: %q, tls: {ca_file: %s}}}\n", r.receiver.url, r.receiver.caFile)
	r.base = strings.Replace(string(text), "\nenvironments:\n", "\n"+hook+"environments:\n", 1)
	return os.WriteFile(r.config, []byte(r.base), 0o600)
}

// write writes the configuration with some texts replaced.
func (r *reloads) write(pairs ...string) error {
	return os.WriteFile(r.config, []byte(strings.NewReplacer(pairs...).Replace(r.base)), 0o600)
}

// reload applies the configuration as it is written, and expects so many changes.
func (r *reloads) reload(ctx context.Context, sinks ...string) error {
	began := time.Now()
	done, err := r.client.Reload(ctx, console.Reload{})
	if err != nil || !done.Applied {
		return fmt.Errorf("it was not applied: %w %+v", err, done.Changes)
	}
	if len(done.Changes) == 0 {
		return errors.New("it changed nothing")
	}
	r.applied++
	r.slowest = max(r.slowest, time.Since(began))
	for _, name := range sinks {
		r.edits[name]++
	}
	if len(done.ChangingOver) > 0 {
		return fmt.Errorf("%s did not change over in time", done.ChangingOver)
	}
	return nil
}

// change changes all sinks at once, and takes it back at the next round.
func (r *reloads) change(ctx context.Context, round int) error {
	pairs := []string{"timeout: 5s", fmt.Sprintf("timeout: %ds", 6+round%7), "rotate_every: -1s", fmt.Sprintf("rotate_every: %dh", 100+round)}
	if err := r.write(pairs...); err != nil {
		return err
	}
	if err := r.reload(ctx, "kafka", "nats", "file"); err != nil {
		return err
	}
	if err := r.write(); err != nil {
		return err
	}
	return r.reload(ctx, "kafka", "nats", "file")
}

// hang changes a sink whose destination does not answer; that holds up neither the reload nor the
// others, and the sink goes on when its destination does.
func (r *reloads) hang(ctx context.Context, round int) error {
	r.natsProxy.set(fault{mute: true})
	defer r.natsProxy.set(fault{})
	if err := r.write("create_stream: EVENTS", fmt.Sprintf("create_stream: EVENTS, username: u%d, password: p-of-some-length-%d", round, round)); err != nil {
		return err
	}
	err := r.reload(ctx, "nats")
	if err := r.write(); err != nil {
		return err
	}
	return errors.Join(err, r.reload(ctx, "nats"))
}

const further = "further" // a sink and an environment that come and go

func (r *reloads) add(ctx context.Context, round int) error {
	path := filepath.Join(r.t.dir, fmt.Sprintf("further-%d.jsonl", round))
	err := r.write("  - {name: hook", fmt.Sprintf("  - {name: %s, file: {path: %s}}\n  - {name: hook", further, path))
	if err == nil {
		err = r.reload(ctx)
	}
	if err != nil {
		return err
	}
	return r.until(ctx, "the added sink is delivered to", func() bool {
		info, err := os.Stat(path)
		return err == nil && info.Size() > 0
	})
}

func (r *reloads) remove(ctx context.Context, _ int) error {
	if err := r.write(); err != nil {
		return err
	}
	return r.reload(ctx)
}

// certificate replaces the receiver's authority and certificate, and then the file with the
// authority: the sink is to be delivered to again.
func (r *reloads) certificate(ctx context.Context, _ int) error {
	if err := r.receiver.renew(); err != nil {
		return err
	}
	before := r.receiver.requests.Load()
	if _, err := r.client.Reload(ctx, console.Reload{}); err != nil {
		return err
	}
	if err := r.until(ctx, "the changed certificate is seen", func() bool { return r.receiver.requests.Load() > before }); err != nil {
		return err
	}
	r.receiver.renewals++
	return nil
}

// environment adds an environment, pushes to it, and removes it.
func (r *reloads) environment(ctx context.Context, _ int) error {
	const user, password = "further", "further-has-a-password"
	err := r.write("\nenvironments:\n", fmt.Sprintf("\nenvironments:\n  - {project: %s, environment: live, credentials: [{username: %s, password: %s}]}\n", further, user, password))
	if err == nil {
		err = r.reload(ctx)
	}
	if err != nil {
		return err
	}
	if code, err := r.pushAs(ctx, user, password); err != nil || code != http.StatusNoContent {
		return fmt.Errorf("a push to the added environment got %d: %w", code, err)
	}
	if err := r.write(); err != nil {
		return err
	}
	if err := r.reload(ctx); err != nil {
		return err
	}
	if code, err := r.pushAs(ctx, user, password); err != nil || code != http.StatusUnauthorized {
		return fmt.Errorf("a push to the removed environment got %d: %w", code, err)
	}
	return nil
}

func (r *reloads) pushAs(ctx context.Context, user, password string) (int, error) {
	body := strings.NewReader(fmt.Sprintf(`{"streams":[{"stream":{"a":"b"},"values":[["%d","{}"]]}]}`, time.Now().UnixNano()))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.ingest+"/loki/api/v1/push", body)
	if err != nil {
		return 0, err
	}
	req.SetBasicAuth(user, password)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// broken is refused as a whole: not even its good parts are applied.
func (r *reloads) broken(ctx context.Context, round int) error {
	var broken string
	switch round / 8 % 3 {
	case 0:
		broken = "\nno_such_field: 1\nenvironments:\n"
	case 1:
		broken = "  - {name: hook, webhook: {url: \"https://127.0.0.1:1\", tls: {ca_file: /does/not/exist}}}\nenvironments:\n"
	default:
		broken = "journal: {max_bytes: 3GiB}\nenvironments:\n" // it takes a restart
	}
	if err := r.write("timeout: 5s", "timeout: 4s", "\nenvironments:\n", "\n"+broken); err != nil {
		return err
	}
	done, err := r.client.Reload(ctx, console.Reload{})
	if done.Applied {
		return fmt.Errorf("a broken configuration was applied: %w", err)
	}
	if err := r.write(); err != nil {
		return err
	}
	done, err = r.client.Reload(ctx, console.Reload{DryRun: true})
	if err != nil || len(done.Changes) > 0 {
		return fmt.Errorf("a part of a broken configuration was applied: %w %+v", err, done.Changes)
	}
	return nil
}

// signal has the relay reload by SIGHUP.
func (r *reloads) signal(ctx context.Context, round int) error {
	level := []string{"warn", "info"}[round/8%2]
	if err := r.write("\nenvironments:\n", "\nlog: {level: "+level+"}\nenvironments:\n"); err != nil {
		return err
	}
	done, err := r.client.Reload(ctx, console.Reload{DryRun: true})
	if err != nil {
		return err
	}
	if err := r.relay.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	err = r.until(ctx, "the signal is heard", func() bool {
		now, err := r.client.Reload(ctx, console.Reload{DryRun: true})
		return err == nil && len(now.Changes) == 0
	})
	if err == nil && len(done.Changes) > 0 {
		r.applied++
	}
	if err := errors.Join(err, r.write()); err != nil {
		return err
	}
	_, err = r.client.Reload(ctx, console.Reload{})
	return err
}

// fewAgain is an error if a sink got more again than a batch for each time that it was changed.
func (r *reloads) fewAgain() error {
	const batch = 5000
	most := int64(0)
	for _, edits := range r.edits {
		most += int64(edits) * batch
	}
	r.t.remark("at most %d may come again", most)
	if r.t.row.duplicates > most {
		return fmt.Errorf("%d events came again, more than a batch for each change of a sink", r.t.row.duplicates)
	}
	return nil
}
