package subresource

import (
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/rules/vmi/verb"
)

const defaultFreeze = 5 * time.Minute

// FreezeTimeout returns after how long file systems are thawed by themselves.
func FreezeTimeout(options *v1.FreezeUnfreezeTimeout) (time.Duration, error) {
	if options.UnfreezeTimeout == nil || options.UnfreezeTimeout.Duration == 0 {
		return defaultFreeze, nil
	}
	timeout := options.UnfreezeTimeout.Duration
	if timeout < 0 || timeout > launch.MaxFrozen {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("unfreezeTimeout is %v; it must be more than 0 and at most %v", timeout, launch.MaxFrozen))
	}
	return timeout, nil
}

func (s *Server) freeze(w http.ResponseWriter, r *http.Request) error {
	options, err := readOptions[v1.FreezeUnfreezeTimeout](r)
	if err != nil {
		return err
	}
	timeout, err := FreezeTimeout(options)
	if err != nil {
		return err
	}
	vmi, err := s.instance(r, verb.Freeze)
	if err != nil {
		return err
	}
	destination := nodeapi.Path(vmi.Namespace, vmi.Name, string(vmi.UID), nodeapi.Quiesce)
	query := destination.Query()
	query.Set(nodeapi.HolderQuery, launch.HolderUser)
	query.Set(nodeapi.AgentQuery, "true")
	query.Set(nodeapi.TimeoutQuery, timeout.String())
	destination.RawQuery = query.Encode()
	s.passTo(w, r, vmi, destination)
	return nil
}

// unfreeze undoes freeze. It is no error if the file systems are not frozen.
func (s *Server) unfreeze(w http.ResponseWriter, r *http.Request) error {
	vmi, err := s.instance(r, verb.Ready)
	if err != nil {
		return err
	}
	destination := nodeapi.Path(vmi.Namespace, vmi.Name, string(vmi.UID), nodeapi.Release)
	query := destination.Query()
	query.Set(nodeapi.HolderQuery, launch.HolderUser)
	query.Set(nodeapi.TokenQuery, "")
	destination.RawQuery = query.Encode()
	s.passTo(w, r, vmi, destination)
	return nil
}
