package server

import (
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"drydock.dev/drydock/internal/answer"
	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/nodeapi"
)

func quiesce(m Machine, w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	timeout, err := time.ParseDuration(query.Get(nodeapi.TimeoutQuery))
	if err != nil || timeout <= 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("the query parameter %s is %q: must be a duration of more than 0", nodeapi.TimeoutQuery, query.Get(nodeapi.TimeoutQuery)))
	}
	holder, err := holder(r)
	if err != nil {
		return err
	}
	only := query.Get(nodeapi.AgentQuery) == "true"
	return holdAnswer(w)(m.Quiesce(r.Context(), launch.Quiesce{Holder: holder, Milliseconds: timeout.Milliseconds(), AgentOnly: only}))
}

func held(m Machine, w http.ResponseWriter, r *http.Request) error {
	return holdAnswer(w)(m.Held(r.Context(), launch.Held{Verify: r.URL.Query().Get(nodeapi.VerifyQuery) == "true"}))
}

func release(m Machine, w http.ResponseWriter, r *http.Request) error {
	holder, err := holder(r)
	if err != nil {
		return err
	}
	return holdAnswer(w)(m.Release(r.Context(), launch.Release{Holder: holder, Token: r.URL.Query().Get(nodeapi.TokenQuery)}))
}

func holder(r *http.Request) (string, error) {
	name := r.URL.Query().Get(nodeapi.HolderQuery)
	if name == "" || len(name) > launch.MaxHolder {
		return "", apierrors.NewBadRequest(fmt.Sprintf("the query parameter %s must name in at most %d bytes who holds the guest", nodeapi.HolderQuery, launch.MaxHolder))
	}
	return name, nil
}

func holdAnswer(w http.ResponseWriter) func(launch.Hold, error) error {
	return func(hold launch.Hold, err error) error {
		if err != nil {
			return err
		}
		return answer.JSON(w, http.StatusOK, hold)
	}
}
