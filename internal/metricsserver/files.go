package metricsserver

import (
	"crypto/tls"
	"fmt"
	"path/filepath"
	"sync"
	"time"
)

const lookEvery = 5 * time.Second

// files reads a certificate and key that the kubelet mounts from a Secret: it replaces both, and they appear late if the
// Secret was empty.
type files struct {
	folder string

	mu     sync.Mutex
	looked time.Time
	pair   *tls.Certificate
	err    error
}

// While the files don't match, because they are being replaced, the previous certificate stays.
func (f *files) current() (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.looked) >= lookEvery {
		f.looked = now
		pair, err := tls.LoadX509KeyPair(filepath.Join(f.folder, "tls.crt"), filepath.Join(f.folder, "tls.key"))
		if f.err = err; err == nil {
			f.pair = &pair
		}
	}
	if f.pair == nil {
		return nil, fmt.Errorf("there is no certificate for metrics in %s yet: %w", f.folder, f.err)
	}
	return f.pair, nil
}
