// Package nodepostcopy enables a node as a target of post-copy: QEMU at the target of a migration needs userfaultfd,
// which the container runtime's default seccomp profile refuses.
//
// It owns the seccomp profile that permits it to a launcher, in the kubelet's folder of profiles, the check whether
// the kernel permits it, and the node's label for both. It must not decide which pods name the profile (package
// launcherpod does), and must not change a setting of the node's administrator: no sysctl, no device (decision 363).
package nodepostcopy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
)

const (
	// lookEvery is the interval of checking file and kernel: an administrator who sets the sysctl need not restart
	// anything, and a removed file is restored before a pod that waits for it is given up.
	lookEvery   = 10 * time.Second
	leaveWithin = 2 * time.Second
)

// Keeper maintains profile and label. Its fields are required.
type Keeper struct {
	Node    string
	Writer  client.Writer
	Profile Profile
	// Without Filters, a container runtime refuses a pod with a profile.
	Filters func() bool
	Try     func() error
	Log     logr.Logger

	// labeled is the label's last written value, if known.
	labeled   string
	known     bool
	complaint string
}

// Run maintains profile and label until ctx ends, and removes them then: a release without the profile would keep the
// label.
func (k *Keeper) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		k.syncLabel(ctx)
		select {
		case <-ctx.Done():
			return k.cleanUp(ctx)
		case <-ticker.C:
		}
	}
}

func (k *Keeper) syncLabel(ctx context.Context) {
	value, why := k.state()
	if !k.known || value != k.labeled {
		if err := k.label(ctx, value); err != nil {
			k.logNewReason("the node could not be labeled; trying again", err)
			return
		}
		k.Log.Info("post-copy to this node", "label", value)
	}
	k.logNewReason("no guest comes to this node by post-copy", why)
}

// state returns the label's value, empty for none, and the reason. The file is written before the label claims it.
func (k *Keeper) state() (value string, why error) {
	if !k.Filters() {
		return "", errors.New("the kernel filters no system calls, so pods can't have a seccomp profile of their own")
	}
	written, err := k.Profile.Put()
	if err != nil {
		return "", err
	}
	if written {
		// The remover of the file, an earlier virt-handler that ends late, may have removed the label, too.
		k.known = false
	}
	if err := k.Try(); err != nil {
		return layout.PostCopyUnusable, err
	}
	return layout.PostCopyUsable, nil
}

func (k *Keeper) logNewReason(what string, err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != k.complaint && err != nil {
		k.Log.Info(what, "reason", said)
	}
	k.complaint = said
}

func (k *Keeper) label(ctx context.Context, value string) error {
	var wanted any
	if value != "" {
		wanted = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{layout.PostCopyLabel: wanted}}})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	k.known = false
	node := &corev1.Node{}
	node.Name = k.Node
	if err := k.Writer.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("labeling node %s: %w", k.Node, err)
	}
	k.labeled, k.known = value, true
	return nil
}

// cleanUp removes the label, and then the file. If the API server is unreachable, both stay: a pod that is scheduled
// here by the label finds the file. If it refuses, the file goes: Drydock has been removed with its rights.
func (k *Keeper) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	var answer apierrors.APIStatus
	if err := k.label(ctx, ""); err != nil && !errors.As(err, &answer) {
		k.Log.Info("the seccomp profile of launchers stays, since the node could not be labeled", "reason", err.Error())
		return nil
	}
	if err := k.Profile.Remove(); err != nil {
		k.Log.Info("the seccomp profile of launchers stays", "reason", err.Error())
	}
	return nil
}
