package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// upgraded replaces the relay's process by another one under load, again and again: in turn as
// systemd does, which holds the listening socket and restarts the process after a SIGTERM, and by
// hand, where the process replaces itself. The file of the program is another one each time.
func upgraded(ctx context.Context, t *trial) error {
	s, err := t.newScene(ctx, setting{rate: 100})
	if err != nil {
		return err
	}
	defer s.close()
	s.binary = filepath.Join(t.dir, "auditrelay")
	if err := s.install(); err != nil {
		return err
	}
	socket, err := listeningSocket(ctx, s.ingest)
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	if err := s.startOn(socket); err != nil {
		return err
	}
	if err := s.waitReady(ctx); err != nil {
		return err
	}
	p := s.startPusher(ctx, t.rate)
	defer p.end()
	byHand := 0
	for rounds := share(t.rounds, 2); t.row.rounds < rounds; t.row.rounds++ {
		if err := s.more(ctx, p, uint64(t.rate)); err != nil {
			return err
		}
		if err := s.install(); err != nil {
			return err
		}
		replace := func() error { return s.restartOn(socket) }
		if t.row.rounds%2 == 1 {
			replace = func() error { byHand++; return s.replaceItself(ctx) }
		}
		if err := replace(); err != nil {
			return err
		}
		if t.row.rounds%10 == 9 {
			t.progress("replaced %d times: %s", t.row.rounds+1, p)
		}
	}
	if err := s.more(ctx, p, uint64(t.rate)); err != nil {
		return err
	}
	p.stop(s)
	t.remark("%d restarts with the socket of a service manager, %d in place; %s", t.row.rounds-byHand, byHand, p)
	return errors.Join(p.verdict(), s.settle(ctx))
}

// install puts a copy of the program in the place of the one before.
func (s *scene) install() error {
	from, err := os.Open(s.t.binary)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	to, err := os.OpenFile(s.binary+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	return os.Rename(s.binary+".new", s.binary)
}

// listeningSocket listens as a service manager does, and accepts nothing.
func listeningSocket(ctx context.Context, address string) (*os.File, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = listener.Close() }() // the copy stays open
	return listener.(*net.TCPListener).File()
}

// startOn starts the relay with a listening socket, by the protocol of sd_listen_fds(3).
func (s *scene) startOn(socket *os.File) error {
	cmd := s.command("/bin/sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=ingest exec "$0" "$@"`, s.binary, "run", "--config", s.config)
	cmd.ExtraFiles = []*os.File{socket}
	return s.launch(cmd)
}

func (s *scene) restartOn(socket *os.File) error {
	if err := s.relay.stop(); err != nil {
		return err
	}
	return s.startOn(socket)
}

// replaceItself has the relay's process replace itself, and waits until the next one runs.
func (s *scene) replaceItself(ctx context.Context) error {
	before := s.starts()
	if err := s.relay.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		return fmt.Errorf("ask the relay to replace itself: %w", err)
	}
	return s.until(ctx, "it has replaced itself", func() bool { return s.starts() > before })
}

// starts counts the relay's starts, by its log.
func (s *scene) starts() int {
	text, _ := os.ReadFile(s.relay.log) // none yet: it has not started
	return bytes.Count(text, []byte("relay is running"))
}

// more waits until so many further events are acknowledged to a pusher.
func (s *scene) more(ctx context.Context, p *pusher, events uint64) error {
	goal := p.acknowledged.Load() + events
	left := func() int64 { return int64(goal) - int64(p.acknowledged.Load()) }
	return s.while(ctx, "the pusher has its acknowledgements", left, func() bool { return left() <= 0 })
}
