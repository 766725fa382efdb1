//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"regexp"
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

// TestAMigrationTellsHowFarItIs checks the progress that users see of migrations. internal/rules/vmi/vmistatus and
// virtctl's scripts cover its interval and words; only a real QEMU has figures that change, and a console that ends
// with it.
func TestAMigrationTellsHowFarItIs(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	g := bootVM(t, newMigratableVM(t, ns, "tells")) // logs in on the console, which other consoles share
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
				figuresOfMigration(t, from, ns, true)
			}
		}
		return vmi.Status.NodeName != from && now == nil
	})
	checkTold(t, moved, told)
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

// checkTold checks the reported progress of a migration, in its order.
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
		if err != nil || now <= sent {
			t.Errorf("%q follows on %d MiB (%v)", c.Message, sent, err)
		}
		sent = now
	}
	// Also the final amount, for the last part of the memory. The time that the guest takes to resume has no influence
	// on it.
	if all, most := sentInAll(t, vmi.Namespace), sent+3*int(vmistatus.ProgressInterval.Seconds())*slowMiB; all > most {
		t.Errorf("%d MiB were sent in all, and the last that was told is %d", all, sent)
	}
}

// allSent matches the sent memory in a migration's event.
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

// figuresOfMigration waits until the virt-handler of a node has metrics of the migrations in a namespace, or has none.
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
