//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1 "kubevirt.io/api/migrations/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// memorySent matches the documented message during the transfer of memory.
var memorySent = regexp.MustCompile(`^[0-9]+% of the memory is there: [0-9]+ MiB of [0-9]+ MiB left, ([0-9]+) MiB sent, [0-9]+ MiB/s; ` +
	`the guest changes [0-9]+ MiB/s and would stand still for [0-9]+ ms$`)

// TestAMigrationTellsHowFarItIs checks the progress that users see. vmistatus and virtctl's scripts cover
// interval and words; only a real QEMU has figures that change, and a console that ends with it.
func TestAMigrationTellsHowFarItIs(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	vm := newMigratableVM(t, ns, "tells")
	// The delay is for its boot. The kubelet must not probe the target before the guest has arrived.
	vm.Spec.Template.Spec.LivenessProbe = &v1.Probe{Handler: v1.Handler{GuestAgentPing: &v1.GuestAgentPing{}}, InitialDelaySeconds: 3600}
	g := bootVM(t, vm) // logs in on the console, which other consoles share
	g.run("dd if=/dev/urandom of=/run/memory bs=1M count=24 2>/dev/null")
	inTurn(t,
		chapter{"a slow one tells how far it is", func(t *testing.T) { tellsHowFarItIs(t, ns) }},
		chapter{"a console goes on through it", func(t *testing.T) { consoleGoesOnThroughAMigration(t, ns, "tells") }},
	)
}

// slowMiB is the bandwidth, in MiB a second, of a migration that must take some time.
const slowMiB = 2

// tellsHowFarItIs slows a migration down. Meanwhile the VMI's condition, the metrics of virt-handler and virtctl must
// show its progress, with at most one write in five seconds, and none of it may be left in the end.
func tellsHowFarItIs(t *testing.T, ns string) {
	t.Helper()
	limit(t, ns, "tells", migrationsv1.MigrationPolicySpec{BandwidthPerMigration: resource.NewQuantity(slowMiB<<20, resource.BinarySI)})
	from := awaitRunning(t, ns, "tells").Status.NodeName

	shown := make(chan string, 1)
	go func() {
		out, err := virtctl(t.Context(), "-n", ns, "migrate", "tells", "--wait")
		shown <- fmt.Sprintf("%s\n(%v)", out, err)
	}()
	var told []v1.VirtualMachineInstanceCondition
	moved := awaitVMI(t, ns, "tells", "another node", func(vmi *v1.VirtualMachineInstance) bool {
		m, now := vmi.Status.MigrationState, condition.Find(vmi.Status.Conditions, vmistatus.MigrationProgress)
		if m != nil && m.Failed {
			t.Fatalf("the migration failed: %s", m.FailureReason)
		}
		if now != nil && (len(told) == 0 || !now.LastProbeTime.Equal(&told[len(told)-1].LastProbeTime)) {
			if told = append(told, *now); len(told) == 1 {
				// First, because the metrics of a busy virt-handler may take until the guest has arrived.
				if isProbed(t, ns, m.TargetPod) {
					t.Error("the kubelet probes the target, and the guest has not arrived")
				}
				figuresOfMigration(t, from, ns, true)
			}
		}
		return vmi.Status.NodeName != from && now == nil
	})
	checkTold(t, moved, told)
	eventually(t, "the kubelet's probes of the guest", func(context.Context) error {
		if !isProbed(t, ns, moved.Status.MigrationState.TargetPod) {
			return errors.New("they have not started")
		}
		return nil
	})
	if out := <-shown; !regexp.MustCompile(`(?m)^Running: [0-9]+% of the memory is there: `).MatchString(out) || !strings.Contains(out, "has migrated from node "+from) {
		t.Errorf("virtctl has shown\n%s", out)
	} else {
		t.Logf("figure progress: %d writes; virtctl has shown\n%s", len(told), out)
	}
	vm := &v1.VirtualMachine{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "tells"}, vm); err != nil {
		t.Fatalf("reading the VM: %v", err)
	}
	if c := condition.Find(vm.Status.Conditions, v1.VirtualMachineConditionType(vmistatus.MigrationProgress)); c != nil {
		t.Errorf("the VM says %+v", c)
	}
	figuresOfMigration(t, from, ns, false)
}

// isProbed reports whether the kubelet performs the liveness probe of a pod: its startup probe has succeeded.
func isProbed(t *testing.T, ns, name string) bool {
	t.Helper()
	pod := &corev1.Pod{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, pod); err != nil {
		t.Fatalf("reading the pod %s: %v", name, err)
	}
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Started != nil && *s.Started })
}

func checkTold(t *testing.T, vmi *v1.VirtualMachineInstance, told []v1.VirtualMachineInstanceCondition) {
	t.Helper()
	if len(told) < 2 {
		t.Fatalf("it was told %d times how far it is: %+v", len(told), told)
	}
	last, sent := vmi.Status.MigrationState.StartTimestamp.Time, -1
	for _, c := range told {
		if pause := c.LastProbeTime.Sub(last); pause < vmistatus.ProgressInterval {
			t.Errorf("%q was told after %v", c.Message, pause)
		}
		last = c.LastProbeTime.Time
		found := memorySent.FindStringSubmatch(c.Message)
		if found == nil || c.Reason != string(vmistatus.SendingMemory) {
			t.Errorf("what is told has another form: %s, %q", c.Reason, c.Message)
			continue
		}
		now, err := strconv.Atoi(found[1])
		if err != nil || now < sent {
			t.Errorf("%q follows on %d MiB (%v)", c.Message, sent, err)
		}
		sent = now
	}
	// Also the final amount, for the last part of the memory. The time that the guest takes to resume has no influence
	// on it. The intervals are more than one for a virt-handler whose write takes long.
	if all, most := sentInAll(t, vmi.Namespace), sent+6*int(vmistatus.ProgressInterval.Seconds())*slowMiB; all > most {
		t.Errorf("%d MiB were sent in all, and the last that was told is %d", all, sent)
	}
}

var allSent = regexp.MustCompile(`; QEMU sent ([0-9]+) MiB`)

// sentInAll waits for the event about the only migration in a namespace, and returns the MiB that it has sent.
func sentInAll(t *testing.T, ns string) (mebibytes int) {
	t.Helper()
	eventually(t, "the event about the migration", func(ctx context.Context) error {
		var events corev1.EventList
		if err := cluster.client.List(ctx, &events, client.InNamespace(ns)); err != nil {
			return err
		}
		for i := range events.Items {
			if found := allSent.FindStringSubmatch(events.Items[i].Message); found != nil {
				var err error
				mebibytes, err = strconv.Atoi(found[1])
				return err
			}
		}
		return fmt.Errorf("none of %d events says what was sent", len(events.Items))
	})
	return mebibytes
}

func figuresOfMigration(t *testing.T, node, ns string, want bool) {
	t.Helper()
	of := regexp.MustCompile(`(?m)^kubevirt_vmi_migration_data_(bytes_total|processed_bytes|remaining_bytes)\{.*namespace="` + ns + `".*\} [1-9]`)
	eventually(t, fmt.Sprintf("metrics of the migration being there: %v", want), func(ctx context.Context) error {
		text, err := readMetrics(ctx, handlerPod(t, node))
		if err != nil {
			return err
		}
		if found := of.FindAllString(text, -1); (len(found) == 3) != want || !want && len(found) > 0 {
			return fmt.Errorf("it has %q", found)
		}
		return nil
	})
}
