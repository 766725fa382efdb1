// Package memorydump holds virtctl's verbs on memory dumps: get and remove, and the refusal of download. virt-api decides
// whether a dump is possible; the package only makes the claim, if it is asked to.
package memorydump

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vm/memorydump/dumpspace"
	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/env"
)

// errDownload is for the flags and the verb that need KubeVirt's exports.
var errDownload = errors.New("a memory dump can't be downloaded by virtctl, because Drydock does not export claims: " +
	"start a pod that mounts the dump's claim, and copy the file with 'kubectl cp'; " +
	"'kubectl get vm NAME -o jsonpath={.status.memoryDumpRequest}' names both")

// NewCommand returns the command.
func NewCommand(e *env.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "memory-dump",
		Short: "Dump the memory of a running virtual machine to a claim",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGet(e), newRemove(e), newDownload())
	return cmd
}

type dump struct {
	machine, claim, storageClass, accessMode, output string
	create                                           bool
}

func newGet(e *env.Env) *cobra.Command {
	var d dump
	cmd := &cobra.Command{
		Use:   "get VM",
		Short: "Dump the memory of a running virtual machine to a claim",
		Long: "Dump the memory of a running machine to a file in a claim. The guest stands still meanwhile.\n" +
			"The request's state is in the VM's status.memoryDumpRequest.",
		Example: e.Example("# Dump the memory to the claim 'dump':", "memory-dump get vm-cirros --claim-name=dump",
			"# To a new claim that is large enough:", "memory-dump get vm-cirros --claim-name=dump --create-claim",
			"# Again, to the claim of the last dump:", "memory-dump get vm-cirros"),
		Args: env.ExactArgs("VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.machine = args[0]
			if err := d.check(); err != nil {
				return err
			}
			c, namespace, err := e.Connect()
			if err != nil {
				return err
			}
			return d.get(cmd.Context(), e, c, namespace)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&d.claim, "claim-name", "", "claim of mode Filesystem for the dump; that of the last dump if none is given")
	flags.BoolVar(&d.create, "create-claim", false, "create the claim, with room for the memory of the running machine")
	flags.StringVar(&d.storageClass, "storage-class", "", "storage class of a new claim; the cluster's default if none is given")
	flags.StringVar(&d.accessMode, "access-mode", string(corev1.ReadWriteOnce), "access mode of a new claim: ReadWriteOnce, ReadWriteMany or ReadWriteOncePod")
	flags.StringVar(&d.output, "output", "", "not supported: copy the file from a pod that mounts the claim")
	return cmd
}

func (d *dump) check() error {
	switch {
	case d.output != "":
		return errDownload
	case d.create && d.claim == "":
		return errors.New("--create-claim needs the new claim's name: add --claim-name")
	case !d.create && d.storageClass != "":
		return errors.New("--storage-class is for a new claim: add --create-claim")
	}
	switch corev1.PersistentVolumeAccessMode(d.accessMode) {
	case corev1.ReadWriteOnce, corev1.ReadWriteMany, corev1.ReadWriteOncePod:
		return nil
	}
	return fmt.Errorf("--access-mode must be ReadWriteOnce, ReadWriteMany or ReadWriteOncePod, not %q: QEMU writes the dump", d.accessMode)
}

// The words are those of KubeVirt's virtctl.
func (d *dump) get(ctx context.Context, e *env.Env, c *client.Client, namespace string) error {
	if d.create {
		if err := d.createClaim(ctx, c, namespace); err != nil {
			return err
		}
		fmt.Fprintf(e.Out, "PVC %s/%s created\n", namespace, d.claim)
	}
	ref := client.Ref{Resource: client.VirtualMachines, Namespace: namespace, Name: d.machine}
	if err := c.Put(ctx, ref, "memorydump", &v1.VirtualMachineMemoryDumpRequest{ClaimName: d.claim}); err != nil {
		kept := ""
		if d.create {
			kept = fmt.Sprintf(" (the new PVC %s/%s stays: delete it, or ask again without --create-claim)", namespace, d.claim)
		}
		return fmt.Errorf("asking for a memory dump of VM %s: %w%s", d.machine, err, kept)
	}
	fmt.Fprintf(e.Out, "Successfully submitted memory dump request of VM %s\n", d.machine)
	return nil
}

func (d *dump) createClaim(ctx context.Context, c *client.Client, namespace string) error {
	vmi, err := c.VMI(ctx, namespace, d.machine)
	if err != nil {
		return fmt.Errorf("reading the memory of VMI %s/%s: %w", namespace, d.machine, err)
	}
	mode := corev1.PersistentVolumeFilesystem
	claim := &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: d.claim},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(d.accessMode)},
			VolumeMode:  &mode,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: *resource.NewQuantity(dumpspace.Claim(vmi), resource.BinarySI),
			}},
		},
	}
	if d.storageClass != "" {
		claim.Spec.StorageClassName = &d.storageClass
	}
	_, err = c.Core().PersistentVolumeClaims(namespace).Create(ctx, claim, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("PVC %s/%s already exists: leave --create-claim away to use it", namespace, d.claim)
	case err != nil:
		return fmt.Errorf("creating PVC %s/%s: %w", namespace, d.claim, err)
	}
	return nil
}

func newRemove(e *env.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "remove VM",
		Short: "Make a virtual machine forget the claim of its memory dump",
		Long:  "Make a machine forget the claim of its memory dump. The claim stays, with the file.",
		Args:  env.ExactArgs("VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, namespace, err := e.Connect()
			if err != nil {
				return err
			}
			ref := client.Ref{Resource: client.VirtualMachines, Namespace: namespace, Name: args[0]}
			if err := c.Put(cmd.Context(), ref, "removememorydump", nil); err != nil {
				return fmt.Errorf("asking to remove the memory dump of VM %s: %w", args[0], err)
			}
			fmt.Fprintf(e.Out, "Successfully submitted remove memory dump association of VM %s\n", args[0])
			return nil
		},
	}
}

// The command accepts any flags.
func newDownload() *cobra.Command {
	return &cobra.Command{
		Use: "download", Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error { return errDownload },
	}
}
