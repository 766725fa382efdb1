package upload

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// KeysSecret names the Secret in clusterconfig.Namespace with the keys that sign tokens. An entry's name is its creation
// time in Unix seconds. The newest key signs; others stay until their tokens have expired.
const KeysSecret = "kubevirt-upload-token-keys"

const (
	keySize = 32
	keyLife = 24 * time.Hour
	// keyKept is how long a key is accepted: its life, that of its last token, and a margin for differing clocks.
	keyKept = keyLife + tokenLife + 10*time.Minute
)

type keyring map[string][]byte

func (k keyring) newest() (name string, made time.Time) {
	for entry, key := range k {
		at, good := keyTime(entry)
		if good && len(key) == keySize && (name == "" || at.After(made)) {
			name, made = entry, at
		}
	}
	return name, made
}

func keyTime(entry string) (time.Time, bool) {
	seconds, err := strconv.ParseInt(entry, 10, 64)
	return time.Unix(seconds, 0), err == nil
}

func (k keyring) rotated(now time.Time, random func([]byte)) (keyring, bool) {
	name, made := k.newest()
	// A key from the future would outlive all others: a clock was wrong.
	if name != "" && now.Sub(made) < keyLife && made.Sub(now) < keyLife {
		return k, false
	}
	next := keyring{}
	for entry, key := range k {
		if at, good := keyTime(entry); good && now.Sub(at) < keyKept && at.Sub(now) < keyLife {
			next[entry] = key
		}
	}
	key := make([]byte, keySize)
	random(key)
	next[strconv.FormatInt(now.Unix(), 10)] = key
	return next, true
}

const (
	// ringLife is how long read keys are used, and so how long a revoked key is accepted.
	ringLife = 5 * time.Second
	// unknownEvery is the interval in which keys are read for an unknown key, which anybody can make up.
	unknownEvery = time.Second
	readTimeout  = 10 * time.Second
)

type keys struct {
	cluster client.Client
	now     func() time.Time

	reading singleflight.Group
	// mu guards the fields below.
	mu   sync.Mutex
	ring keyring
	// read is when ring was read, zero for never.
	read time.Time
}

// with returns the keys, and reads them again if another virt-api may have made the named one. Requests share a reading,
// which does not end with any of them.
func (k *keys) with(ctx context.Context, name string) (keyring, error) {
	if ring, fresh := k.remembered(name); fresh {
		return ring, nil
	}
	found, err, _ := k.reading.Do("", func() (any, error) {
		shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
		defer cancel()
		secret, err := k.secret(shared)
		if err != nil {
			return nil, err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.ring, k.read = secret.Data, k.now()
		return k.ring, nil
	})
	ring, _ := found.(keyring)
	return ring, err
}

func (k *keys) remembered(name string) (keyring, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	life := ringLife
	if _, known := k.ring[name]; !known {
		life = unknownEvery
	}
	age := k.now().Sub(k.read)
	return k.ring, !k.read.IsZero() && age >= 0 && age < life
}

// If several virt-apis find the newest key too old, one writes and the others read its result.
func (k *keys) current(ctx context.Context) (keyring, error) {
	var ring keyring
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		secret, err := k.secret(ctx)
		if err != nil {
			return err
		}
		changed := false
		ring, changed = keyring(secret.Data).rotated(k.now(), func(b []byte) { _, _ = rand.Read(b) }) // This never fails.
		if !changed {
			return nil
		}
		secret.Data = maps.Clone(ring)
		return k.cluster.Update(ctx, secret)
	})
	if err != nil {
		return nil, fmt.Errorf("renewing the keys of upload tokens in Secret %s/%s: %w", clusterconfig.Namespace, KeysSecret, err)
	}
	return ring, nil
}

func (k *keys) secret(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := k.cluster.Get(ctx, types.NamespacedName{Namespace: clusterconfig.Namespace, Name: KeysSecret}, secret)
	if err != nil {
		return nil, fmt.Errorf("reading the keys of upload tokens: %w", err)
	}
	return secret, nil
}
