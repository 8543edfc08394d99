"""Credentials of a role, made from other credentials by STS."""

from functools import partial

import botocore.exceptions
import botocore.session
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    DeferredRefreshableCredentials,
)


class AssumedRole(CredentialProvider):
    """Credentials of a role, fetched at the first call and renewed by botocore before they expire.

    Args:
        role_arn: the role.
        source: has the credentials that may assume it; its certificates and proxy are used on the way to STS.
        region: of STS; None: the session's.
        endpoint_url: of STS; None: the region's.
        session_name: what CloudTrail shows.
        external_id: what the role demands, if it does.
    """

    METHOD = "assume-role"

    def __init__(
        self,
        role_arn: str,
        source: botocore.session.Session,
        *,
        region: str | None,
        endpoint_url: str | None,
        session_name: str,
        external_id: str | None,
    ) -> None:
        super().__init__(source)
        self._role_arn = role_arn
        self._source = source
        self._client = partial(source.create_client, region_name=region, endpoint_url=endpoint_url)
        self._extra = {"RoleSessionName": session_name}
        if external_id is not None:
            self._extra["ExternalId"] = external_id

    def load(self) -> DeferredRefreshableCredentials:
        """Give the credentials; called by botocore, once per session."""
        source = self._source.get_credentials()
        if source is None:
            raise botocore.exceptions.NoCredentialsError
        fetcher = AssumeRoleCredentialFetcher(
            client_creator=self._client,
            source_credentials=source,
            role_arn=self._role_arn,
            extra_args=self._extra,
        )
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, self.METHOD)
