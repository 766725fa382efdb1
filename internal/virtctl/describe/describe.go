// Package describe holds virtctl describe: one page in words about a machine. It reads the VM, its VMI and their objects,
// and reports their conditions; it must not decide or change anything.
package describe

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/rules/object/objectevent"
	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
	"drydock.dev/drydock/internal/virtctl/obstacle"
)

// NewCommand returns the command.
func NewCommand(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "describe vm|vmi NAME",
		Short: "Describe a virtual machine on one page",
		Long: "Describe a virtual machine on one page: what it is, where it runs, what it waits for and why, its disks, interfaces\n" +
			"and snapshots, which changes have not reached its guest, and what changed last.\n" +
			"What you may not read is left out, and named.",
		Example: e.Example("# A virtual machine, and its instance if it runs:", "describe vm vm-cirros",
			"# An instance that may have no virtual machine:", "describe vmi vm-cirros"),
		Args: env.ExactArgs("vm or vmi", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			isVM := slices.Contains([]string{"vm", "vms", "virtualmachine", "virtualmachines"}, args[0])
			if !isVM && !slices.Contains([]string{"vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances"}, args[0]) {
				return fmt.Errorf("the first argument must be vm or vmi, not %q", args[0])
			}
			return show(cmd.Context(), e, isVM, args[1])
		},
	}
}

func show(ctx context.Context, e *env.Env, isVM bool, name string) error {
	c, namespace, err := e.Connect()
	if err != nil {
		return err
	}
	f := facts{now: time.Now()}
	if isVM {
		if f.vm, err = c.VM(ctx, namespace, name); err != nil {
			return fmt.Errorf("reading VM %s: %w", name, err)
		}
	}
	switch f.vmi, err = c.VMI(ctx, namespace, name); {
	case apierrors.IsNotFound(err) && isVM:
		f.vmi = nil
	case err != nil:
		return fmt.Errorf("reading VMI %s: %w", name, err)
	}
	if err := f.read(ctx, c, namespace, name); err != nil {
		return err
	}
	_, err = io.WriteString(e.Out, f.page())
	return err
}

// read reads the machine's migrations, snapshots and events. Those that the user may not read are missing.
func (f *facts) read(ctx context.Context, c *client.Client, namespace, name string) error {
	var err error
	if f.migrations, err = c.Migrations(ctx, namespace, name); f.lacks("migrations", err) != nil {
		return fmt.Errorf("reading the migrations of %s: %w", name, err)
	}
	if err := f.readSnapshots(ctx, c, namespace, name); f.lacks("snapshots", err) != nil {
		return fmt.Errorf("reading the snapshots of %s: %w", name, err)
	}
	for _, uid := range f.uids() {
		if err := f.readEvents(ctx, c, namespace, uid); f.lacks("events", err) != nil {
			return fmt.Errorf("reading the events of %s: %w", name, err)
		}
	}
	return nil
}

// lacks notes objects that the user may not read, or that the cluster does not have, and returns any other error.
func (f *facts) lacks(objects string, err error) error {
	if err == nil || !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return err
	}
	if apierrors.IsForbidden(err) && !slices.Contains(f.missing, objects) {
		f.missing = append(f.missing, objects)
	}
	return nil
}

// maxUIDs bounds the objects whose events are read: a VM, its VMI, and its pods and migrations.
const maxUIDs = 8

func (f *facts) uids() []types.UID {
	var list []types.UID
	if f.vm != nil {
		list = append(list, f.vm.UID)
	}
	if f.vmi != nil {
		list = append(list, f.vmi.UID)
		pods := make([]types.UID, 0, len(f.vmi.Status.ActivePods))
		for pod := range f.vmi.Status.ActivePods {
			pods = append(pods, pod)
		}
		slices.Sort(pods)
		list = append(list, pods...)
	}
	for i := range f.migrations {
		if !f.migrations[i].IsFinal() {
			list = append(list, f.migrations[i].UID)
		}
	}
	return list[:min(len(list), maxUIDs)]
}

func (f *facts) readEvents(ctx context.Context, c *client.Client, namespace string, uid types.UID) error {
	list := client.List{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("events"), Namespace: namespace, Fields: "involvedObject.uid=" + string(uid),
	}
	return c.EachObject(ctx, list, func(o *unstructured.Unstructured) bool {
		var event corev1.Event
		if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &event) == nil && event.InvolvedObject.UID == uid {
			f.news = newest(append(f.news, news{objectevent.LastOccurrence(&event), obstacle.Sentence(strings.ToLower(event.InvolvedObject.Kind)+" "+event.InvolvedObject.Name, event.Reason, event.Message)}))
		}
		return true
	})
}

func (f *facts) readSnapshots(ctx context.Context, c *client.Client, namespace, name string) error {
	list := client.List{GroupVersionResource: snapshotv1.SchemeGroupVersion.WithResource("virtualmachinesnapshots"), Namespace: namespace}
	return c.EachObject(ctx, list, func(o *unstructured.Unstructured) bool {
		var s snapshotv1.VirtualMachineSnapshot
		if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &s) == nil && s.Spec.Source.Name == name && s.Spec.Source.Kind == "VirtualMachine" {
			f.snapshots = append(f.snapshots, s)
		}
		return len(f.snapshots) < maxSnapshots
	})
}
