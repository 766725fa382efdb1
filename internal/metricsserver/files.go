package metricsserver

import (
	"crypto/tls"
	"fmt"
	"path/filepath"
	"sync"
	"time"
)

// lookEvery is how long the files are believed to be as they were.
const lookEvery = 5 * time.Second

// files are a certificate and its key in a folder, as the kubelet shows a Secret: it replaces both when the Secret changes,
// and they come late if the Secret was empty.
type files struct {
	folder string

	mu     sync.Mutex
	looked time.Time
	pair   *tls.Certificate
	err    error
}

// current is the certificate. While the two files are not of one kind, because they are being replaced, the one before
// serves.
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
