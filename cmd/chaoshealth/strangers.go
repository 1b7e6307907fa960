package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// strangerIncidents are of connections, disks and policies, to fire their alerts.
func strangerIncidents() []incident {
	address := ""
	if free, err := rig.FreeAddresses(context.Background(), 1); err == nil {
		address = free[0]
	}
	return []incident{
		{
			name: "further: a stranger pushes", expected: "flowing", reported: state, cause: pushAsStranger,
			alerts: []string{"UnauthorizedPushes"},
		},
		{
			name: "further: clients refuse a certificate", expected: "flowing", reported: state,
			setup:  setup{before: shortCertificate, more: fmt.Sprintf(`audit: {serve: {listen: %q, tls: {cert_file: "%%[1]s/tls.crt", key_file: "%%[1]s/tls.key"}}}`+"\n", address)},
			cause:  func(ctx context.Context, _ *stage) error { return refuseCertificate(ctx, address) },
			alerts: []string{"TLSHandshakesFailing"},
		},
		{
			name: "further: a disk smaller than the budget", expected: "flowing", reported: state, cause: nothing,
			setup: setup{journal: "{max_bytes: 100TiB}"}, alerts: []string{"DiskFilling"},
		},
		{
			name: "further: a setting violates a policy", expected: "flowing", reported: state, cause: nothing,
			setup: setup{
				settings: "{interval: 1s}",
				more:     "policies: {rules: [{name: nobody, setting: project, cel: 'false', reason: to see the alert}]}\n",
			},
			alerts: []string{"PolicyViolated"},
		},
	}
}

// pushAsStranger pushes without a credential.
func pushAsStranger(ctx context.Context, s *stage) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.relay.Ingest+"/loki/api/v1/push", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusUnauthorized {
		err = fmt.Errorf("a stranger's push was answered with %s", answer.Status)
	}
	_ = answer.Body.Close()
	return err
}

// refuseCertificate connects as clients that do not know the certificate's authority.
func refuseCertificate(ctx context.Context, address string) error {
	for range 5 {
		conn, err := (&tls.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
			return fmt.Errorf("a client of %s trusts a certificate of nobody", address)
		}
	}
	return nil
}
