// Package nodepostcopy has a node be able to take guests by post-copy: QEMU at the target of a migration needs
// userfaultfd, which the container runtime's default seccomp profile refuses.
//
// It owns the seccomp profile with which a launcher may call it, in the kubelet's folder of profiles, the question
// to the kernel whether a launcher would have it, and the node's label that says both. It must not
// decide which pods name the profile (package launcherpod does), and it changes nothing that the node's
// administrator has set: no sysctl, no device (decisions 363 and 364).
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
	// lookEvery is how often file and kernel are looked at: an administrator who sets the sysctl need not
	// restart anything, and a file that was removed is there again before a pod that waits for it is given up.
	lookEvery = 10 * time.Second
	// leaveWithin bounds the last write, when virt-handler ends.
	leaveWithin = 2 * time.Second
)

// Keeper keeps profile and label. Its fields are required.
type Keeper struct {
	Node   string
	Writer client.Writer
	// Profile is the file.
	Profile Profile
	// Filters reports whether the kernel filters system calls: a container runtime refuses a pod with a
	// profile where it does not.
	Filters func() bool
	// Try asks the kernel for userfaultfd as a launcher would.
	Try func() error
	Log logr.Logger

	// said is what the label was set to last, unless it is not known.
	said  string
	known bool
	// complaint is what was logged last.
	complaint string
}

// Run keeps them until ctx ends, and takes them away then: a release that doesn't know of the profile
// would leave the label where the file is not kept any more.
func (k *Keeper) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		k.look(ctx)
		select {
		case <-ctx.Done():
			return k.leave(ctx)
		case <-ticker.C:
		}
	}
}

// look has the file be there, and then the label say what is so.
func (k *Keeper) look(ctx context.Context) {
	value, why := k.state()
	if !k.known || value != k.said {
		if err := k.label(ctx, value); err != nil {
			k.complain("the node could not be labeled; trying again", err)
			return
		}
		k.Log.Info("post-copy to this node", "label", value)
	}
	k.complain("no guest comes to this node by post-copy", why)
}

// state is the label's value, empty for none, and why it is not the best one. The file is looked at, and written,
// before the label says that it is there.
func (k *Keeper) state() (value string, why error) {
	if !k.Filters() {
		return "", errors.New("the kernel filters no system calls, so pods can't have a seccomp profile of their own")
	}
	written, err := k.Profile.Put()
	if err != nil {
		return "", err
	}
	if written {
		// Whoever has removed the file may have taken the label away, too: an earlier virt-handler that
		// ended late does both.
		k.known = false
	}
	if err := k.Try(); err != nil {
		return layout.PostCopyUnusable, err
	}
	return layout.PostCopyUsable, nil
}

// complain logs an error when it is another one than before.
func (k *Keeper) complain(what string, err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != k.complaint && err != nil {
		k.Log.Info(what, "reason", said)
	}
	k.complaint = said
}

// label writes the label, or takes it away if the value is empty.
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
	k.said, k.known = value, true
	return nil
}

// leave takes the label away, and then the file. When nobody answers for the label, both stay: a pod that comes
// here by the label finds the file. An API server that refuses has answered: Drydock's rights are gone, and so is
// Drydock.
func (k *Keeper) leave(ctx context.Context) error {
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
