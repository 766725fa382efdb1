package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/logs"
	"drydock.dev/drydock/internal/rules/snapshot"
)

// Guests quiesces guests and releases them. Errors are the API server's; a conflict means that a retry may succeed.
type Guests interface {
	// Quiesce holds the guest for at most timeout.
	Quiesce(ctx context.Context, vmi *v1.VirtualMachineInstance, holder string, timeout time.Duration) (launch.Hold, error)
	// Held returns the present or the last hold. With verify, the guest agent is asked.
	Held(ctx context.Context, vmi *v1.VirtualMachineInstance, verify bool) (launch.Hold, error)
	// Release lets the guest run on.
	Release(ctx context.Context, vmi *v1.VirtualMachineInstance, holder string) (launch.Hold, error)
}

// subresources implements Guests by subresources of VMIs, to which only virt-controller has rights.
type subresources struct{ client rest.Interface }

// NewGuests returns Guests that uses the API server's subresources.
func NewGuests(server *rest.Config) (Guests, error) {
	config := rest.CopyConfig(server)
	config.APIPath = "/apis"
	config.GroupVersion = &v1.SubresourceStorageGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the subresources of VMIs: %w", err)
	}
	return &subresources{client}, nil
}

func (s *subresources) Quiesce(ctx context.Context, vmi *v1.VirtualMachineInstance, holder string, timeout time.Duration) (launch.Hold, error) {
	return answer(ctx, to(s.client.Put(), vmi, nodeapi.Quiesce).
		Param(nodeapi.HolderQuery, holder).Param(nodeapi.TimeoutQuery, timeout.String()))
}

func (s *subresources) Held(ctx context.Context, vmi *v1.VirtualMachineInstance, verify bool) (launch.Hold, error) {
	return answer(ctx, to(s.client.Get(), vmi, nodeapi.Quiesce).Param(nodeapi.VerifyQuery, fmt.Sprint(verify)))
}

func (s *subresources) Release(ctx context.Context, vmi *v1.VirtualMachineInstance, holder string) (launch.Hold, error) {
	return answer(ctx, to(s.client.Put(), vmi, nodeapi.Release).Param(nodeapi.HolderQuery, holder))
}

func to(r *rest.Request, vmi *v1.VirtualMachineInstance, verb nodeapi.Verb) *rest.Request {
	return r.Namespace(vmi.Namespace).Resource("virtualmachineinstances").Name(vmi.Name).SubResource(string(verb)).MaxRetries(0)
}

func answer(ctx context.Context, r *rest.Request) (hold launch.Hold, err error) {
	result := r.Do(ctx)
	// Raw's error lacks the response of virt-api or virt-handler.
	if err := result.Error(); err != nil {
		return hold, err
	}
	text, err := result.Raw()
	if err != nil {
		return hold, fmt.Errorf("reading what holds the guest: %w", err)
	}
	if err := json.Unmarshal(text, &hold); err != nil {
		return hold, fmt.Errorf("reading what holds the guest: %w", err)
	}
	return hold, nil
}

const (
	// silence bounds the requests for a guest's hold and for its release after the cuts.
	silence = 5 * time.Second
	// patience bounds the request to quiesce the guest.
	patience = 30 * time.Second
)

// The hold is nil if it is unknown or does not matter.
func (r *Reconciler) holdOn(ctx context.Context, o snapshot.Observed) *launch.Hold {
	ask, verify := snapshot.AsksHold(o)
	if !ask {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	hold, err := r.Guests.Held(ctx, o.VMI, verify)
	if err != nil {
		logs.VMI(ctrl.LoggerFrom(ctx), o.VMI).Info("nobody says whether the guest is held still", "reason", err.Error())
		return nil
	}
	return &hold
}

// quiesce quiesces the guest. If there is an obstacle, it writes that into the status and returns no hold.
func (r *Reconciler) quiesce(ctx context.Context, o snapshot.Observed, plan snapshot.Plan) (held *launch.Hold, again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	hold, err := r.Guests.Quiesce(ctx, o.VMI, snapshot.Holder(o.Snapshot), plan.Timeout)
	var known apierrors.APIStatus
	forGood := errors.As(err, &known) && known.Status().Reason == nodeapi.NotHeld
	switch {
	case err == nil:
		return &hold, false, nil
	case !forGood && !apierrors.IsConflict(err):
		return nil, false, fmt.Errorf("holding the guest of VMI %s/%s still: %w", o.VMI.Namespace, o.VMI.Name, err)
	}
	to := snapshot.NotHeld(o, plan, known.Status().Message, forGood)
	if _, err = r.writeStatus(ctx, plan.Snapshot, to); err == nil {
		r.emitEnd(plan.Snapshot, to)
	}
	return nil, forGood, err
}

// letGo releases the guest, if there is one. virt-launcher does so itself at the requested deadline.
func (r *Reconciler) letGo(ctx context.Context, o snapshot.Observed) {
	if o.VMI == nil {
		return
	}
	log := logs.VMI(ctrl.LoggerFrom(ctx), o.VMI)
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	hold, err := r.Guests.Release(ctx, o.VMI, snapshot.Holder(o.Snapshot))
	switch {
	case err != nil:
		log.Info("the guest can't be told to go on after its disks were snapshotted; it does so at its deadline", "reason", err.Error())
	case hold.Token != "":
		log.Info("the guest was held still while its disks were snapshotted", "milliseconds", hold.Milliseconds, "method", hold.Method)
	}
}
