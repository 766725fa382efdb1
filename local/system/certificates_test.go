//go:build system

package system

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drydock.dev/local/internal/pki"
)

func (c *cluster) served() (map[string]string, error) {
	addresses := []string{"2379", "6443", "10257", "10259"}
	for i, port := range addresses {
		addresses[i] = c.HostIP().String() + ":" + port
	}
	for _, node := range c.Nodes {
		addresses = append(addresses, c.NodeIP(node).String()+":10250")
	}
	shown := map[string]string{}
	for _, address := range addresses {
		var sum string
		conn, err := tls.Dial("tcp", address, &tls.Config{
			InsecureSkipVerify: true, // the certificate is compared, not trusted
			VerifyConnection: func(s tls.ConnectionState) error {
				sum = fmt.Sprintf("%x", sha256.Sum256(s.PeerCertificates[0].Raw))
				return nil
			},
		})
		if err == nil {
			err = conn.Close()
		}
		if sum == "" {
			return nil, fmt.Errorf("connecting to %s: %w", address, err)
		}
		shown[address] = sum
	}
	return shown, nil
}

// `up` makes the certificates again as it does with expiring ones. The CAs stay.
func certificatesRenewed(t *testing.T, c *cluster) {
	var before map[string]string
	c.eventually("all servers show their certificates", func() (err error) {
		before, err = c.served()
		return err
	})
	processes := c.pids()
	files, err := filepath.Glob(c.PKI("*.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "ca.crt") || filepath.Base(file) == "sa.crt" {
			continue
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	c.up()
	c.eventually("all servers show their new certificates", func() error {
		now, err := c.served()
		if err != nil {
			return err
		}
		for address, sum := range now {
			if sum == before[address] {
				return fmt.Errorf("%s shows the old one", address)
			}
		}
		return nil
	})
	if after := c.pids(); !maps.Equal(after, processes) {
		t.Errorf("the processes were %v and are %v", processes, after)
	}
	c.eventually("the cluster works with new certificates", c.works)
}

// authoritiesReplaced makes the CAs with a clock that is 20 years ahead.
func authoritiesReplaced(t *testing.T, c *cluster) {
	containers, err := c.containers()
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.Ensure(c.Cluster, time.Now().Add(20*365*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	c.up()
	if reasons, err := pki.Unusable(c.Cluster, time.Now()); err != nil || len(reasons) > 0 {
		t.Errorf("after up: %q, %v", reasons, err)
	}
	c.eventually("the cluster works with new authorities", c.works)
	c.assertSameContainers(containers)
}
