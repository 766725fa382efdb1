// Package nodecpus labels a node for guests with dedicated CPUs: does its kubelet give containers CPUs of their own?
//
// It owns the label kubevirt.io/cpumanager and its older name cpumanager. It must not decide which pods need it (package
// launcherpod does). The label stays after
// virt-handler's end, and while such a guest is here: a kubelet that starts again ends pods whose node selector no
// longer fits.
package nodecpus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/vmi/cpupinning"
)

const (
	// lookEvery is the interval of reading the kubelet's file, which it writes when it starts.
	lookEvery = 10 * time.Second
	// maxState bounds that file: it has a line for each container with CPUs of its own.
	maxState = 4 << 20
	static   = "static"
)

// StateFile returns the file in which a kubelet keeps the CPUs of containers, by the kubelet's folder.
func StateFile(kubelet string) string { return filepath.Join(kubelet, "cpu_manager_state") }

// Keeper maintains the label. Its fields are required.
type Keeper struct {
	Node   string
	Writer client.Writer
	// Guests lists the VMIs of this node.
	Guests func(context.Context) ([]v1.VirtualMachineInstance, error)
	State  string
	Log    logr.Logger

	// labeled is the label's last written value, "" if unknown.
	labeled string
	said    string
}

// Run maintains the label until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		if err := k.sync(ctx); err != nil && ctx.Err() == nil && err.Error() != k.said {
			k.said = err.Error()
			k.Log.Info("the label of the CPU manager is not up to date; trying again", "reason", k.said)
		} else if err == nil {
			k.said = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (k *Keeper) sync(ctx context.Context) error {
	policy, err := readPolicy(k.State)
	if err != nil {
		return err
	}
	value := strconv.FormatBool(policy == static)
	if value == k.labeled {
		return nil
	}
	if policy != static {
		needed, err := k.needed(ctx)
		if err != nil {
			return err
		}
		if needed {
			return fmt.Errorf("the kubelet's CPU manager has the policy %q, but a guest with dedicated CPUs runs here: the node keeps its label until that guest is gone", policy)
		}
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q,%q:%q}}}`, v1.CPUManager, value, v1.DeprecatedCPUManager, value)
	node := &corev1.Node{}
	node.Name = k.Node
	if err := k.Writer.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("labeling node %s: %w", k.Node, err)
	}
	k.labeled = value
	return nil
}

func (k *Keeper) needed(ctx context.Context) (bool, error) {
	vmis, err := k.Guests(ctx)
	if err != nil {
		return false, fmt.Errorf("listing the VMIs of node %s: %w", k.Node, err)
	}
	for i := range vmis {
		if vmi := &vmis[i]; cpupinning.Dedicated(&vmi.Spec.Domain) && !vmi.IsFinal() {
			return true, nil
		}
	}
	return false, nil
}

// readPolicy returns the policy of the kubelet's CPU manager, "" if the kubelet has none.
func readPolicy(path string) (string, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("opening the state of the kubelet's CPU manager: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxState))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	var state struct {
		Policy string `json:"policyName"`
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return state.Policy, nil
}
