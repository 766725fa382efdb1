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

	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/vmistatus"
)

// memorySent is the documented form of what is said while memory is sent.
var memorySent = regexp.MustCompile(`^[0-9]+% of the memory is there: [0-9]+ MiB of [0-9]+ MiB left, ([0-9]+) MiB sent, [0-9]+ MiB/s; ` +
	`the guest changes [0-9]+ MiB/s and would stand still for [0-9]+ ms$`)

// TestAMigrationTellsHowFarItIs looks at what a user is told of migrations. How often and in which words is in
// internal/rules/vmistatus and in virtctl's scripts; a real QEMU has figures that change, and a console that ends with it.
func TestAMigrationTellsHowFarItIs(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	g := bootVM(t, newMigratableVM(t, ns, "tells")) // logs in, which all consoles share
	g.run("dd if=/dev/urandom of=/run/memory bs=1M count=24 2>/dev/null")
	inTurn(t,
		chapter{"a slow one tells how far it is", func(t *testing.T) { tellsHowFarItIs(t, ns) }},
		chapter{"a console goes on through it", func(t *testing.T) { consoleGoesOnThroughAMigration(t, ns, "tells") }},
	)
}

// slowMiB is how many MiB a second a migration sends that takes some time.
const slowMiB = 2

// tellsHowFarItIs has a migration take some time: meanwhile the VMI's condition, the metrics of
// virt-handler and virtctl say how far it is, with one write in five seconds at most, and nothing of that is
// left in the end.
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

// checkTold checks what was told of a migration, in the order in which it was.
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
	// In the end, too: of the last of what was sent. How long the guest took to go on where it is says nothing.
	if all, most := sentInAll(t, vmi.Namespace), sent+3*int(vmistatus.ProgressInterval.Seconds())*slowMiB; all > most {
		t.Errorf("%d MiB were sent in all, and the last that was told is %d", all, sent)
	}
}

// allSent is what the event about a migration says of the memory that was sent.
var allSent = regexp.MustCompile(`; QEMU sent ([0-9]+) MiB`)

// sentInAll waits for the event about the one migration in a namespace, and returns how many MiB it has sent.
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

// figuresOfMigration waits until the virt-handler of a node has metrics of the migrations in a namespace, or
// has none.
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
