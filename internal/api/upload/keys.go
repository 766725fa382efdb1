package upload

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// KeysSecret names the Secret in clusterconfig.Namespace with the keys that sign tokens. An entry's name is its
// creation time in Unix seconds. The newest key signs; the others stay until all their tokens have expired.
const KeysSecret = "kubevirt-upload-token-keys"

const (
	keySize = 32
	// keyLife is how long a key signs.
	keyLife = 24 * time.Hour
	// keyKept is how long a key is accepted: its life, that of its last token, and a margin for differing clocks.
	keyKept = keyLife + tokenLife + 10*time.Minute
)

type keyring map[string][]byte

// newest returns the name and the creation time of the key that signs, "" for none.
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

// rotated returns the keyring that is due now, and whether it differs.
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

// keys reads and rotates the Secret.
type keys struct {
	cluster client.Client
	now     func() time.Time
}

func (k *keys) read(ctx context.Context) (keyring, error) {
	secret, err := k.secret(ctx)
	if err != nil {
		return nil, err
	}
	return secret.Data, nil
}

// current returns keys of which the newest may sign. If several virt-apis find it too old, one writes and the others
// read its result.
func (k *keys) current(ctx context.Context) (keyring, error) {
	var ring keyring
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		secret, err := k.secret(ctx)
		if err != nil {
			return err
		}
		changed := false
		ring, changed = keyring(secret.Data).rotated(k.now(), func(b []byte) { _, _ = rand.Read(b) }) // never fails
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
