package guestagent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"drydock.dev/drydock/internal/qemu/agent"
	"drydock.dev/drydock/internal/rules/vmi/accesscredential"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

const (
	// credentialsPoll is the interval of reading the Secrets' files. The kubelet changes them unannounced, a minute or so
	// after the Secret.
	credentialsPoll     = 10 * time.Second
	credentialsPatience = 5 * time.Minute
	// maxFailure bounds the message, which has the guest's text, in bytes.
	maxFailure = 1024
)

// syncCredentials sets the access credentials when they change, and for each agent: the next may run from a disk without
// them.
func (a *Agent) syncCredentials(ctx context.Context, pause time.Duration) {
	var set *accesscredential.Delivery
	for wait, failures := pause, 0; ; {
		if !sleep(ctx, wait) {
			return
		}
		wanted, err := a.env.Credentials()
		if err == nil && set != nil && set.Equal(wanted) {
			wait = credentialsPoll
			continue
		}
		if err == nil {
			err = a.setCredentials(ctx, wanted)
		}
		if ctx.Err() != nil {
			return
		}
		a.setCredentialsStatus(err)
		if err != nil {
			// The guest may have some of the new credentials.
			set, wait = nil, min(credentialsPoll<<min(failures, 8), credentialsPatience)
			failures++
			continue
		}
		set, wait, failures = &wanted, credentialsPoll, 0
	}
}

func (a *Agent) setCredentialsStatus(err error) {
	now := &vmihandler.Credentials{}
	if err != nil {
		now.Failure = truncateTo(err.Error(), maxFailure)
	}
	a.mu.Lock()
	news := a.credentials == nil || *a.credentials != *now
	a.credentials = now
	a.mu.Unlock()
	if news {
		a.env.Wake()
	}
}

// An error for one user does not stop the others.
func (a *Agent) setCredentials(ctx context.Context, d accesscredential.Delivery) error {
	return a.Talk(ctx, func(ctx context.Context, c *agent.Client) error {
		var refused []error
		for _, user := range slices.Sorted(maps.Keys(d.Keys)) {
			err := c.SetAuthorizedKeys(ctx, user, d.Keys[user])
			if err != nil {
				refused = append(refused, fmt.Errorf("setting the SSH public keys of the user %s: %w", user, err))
			}
			if !answered(err) {
				return errors.Join(refused...)
			}
		}
		for _, user := range slices.Sorted(maps.Keys(d.Passwords)) {
			err := c.SetPassword(ctx, user, d.Passwords[user])
			if err != nil {
				refused = append(refused, fmt.Errorf("setting the password of the user %s: %w", user, withoutText(err)))
			}
			if !answered(err) {
				return errors.Join(refused...)
			}
		}
		return errors.Join(refused...)
	})
}

func answered(err error) bool {
	var refusal *agent.Error
	return err == nil || errors.As(err, &refusal)
}

// withoutText removes the agent's text, which may contain a password: more people may read a status than a Secret.
func withoutText(err error) error {
	var refusal *agent.Error
	switch {
	case agent.Unsupported(err):
		return errors.New("the guest agent lacks the command guest-set-user-password")
	case errors.As(err, &refusal):
		return errors.New("the guest agent refuses it; its log in the guest says why")
	}
	return err
}
