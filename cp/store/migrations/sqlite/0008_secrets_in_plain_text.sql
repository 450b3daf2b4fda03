-- compatible with: 4
-- Earlier versions took no document of these types for one with secrets, so they wrote all of them in plain text and did
-- not note it. Without a word that hints at a secret there is none in such a document.

UPDATE secrets_at_rest SET plain = 1
WHERE plain = 0 AND EXISTS (
    SELECT 1 FROM (
        SELECT type, data FROM documents
        UNION ALL SELECT type, before FROM changes
        UNION ALL SELECT type, after FROM changes
    ) AS stored
    WHERE type IN (
        'Mesh', 'MeshExternalService', 'HostnameGenerator', 'MeshIdentity', 'HealthCheck', 'TrafficRoute', 'RateLimit',
        'MeshGatewayRoute', 'MeshHTTPRoute', 'MeshAccessLog', 'MeshTrace', 'MeshRateLimit', 'MeshHealthCheck',
        'MeshRetry', 'MeshMetric', 'MeshProxyPatch', 'ProxyTemplate'
    )
    AND data LIKE '{%' AND (
        data LIKE '%key%' OR data LIKE '%secret%' OR data LIKE '%token%' OR data LIKE '%pass%' OR data LIKE '%pwd%'
        OR data LIKE '%auth%' OR data LIKE '%cookie%' OR data LIKE '%credential%' OR data LIKE '%users%'
        OR data LIKE '%signature%' OR data LIKE '%://%' OR data LIKE '%bearer %' OR data LIKE '%basic %'
        OR data LIKE '%extensions%' OR data LIKE '%jwt%' OR data LIKE '%pkcs12%' OR data LIKE '%config%yaml%'
        OR data LIKE '%eyJ%'
    )
);
