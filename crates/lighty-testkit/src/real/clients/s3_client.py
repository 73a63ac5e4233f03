"""Objects of odd keys in a bucket, by boto3."""
import io
import sys
import urllib.request

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

KEYS = ["plain", "a//b", "a%2Fb", "\u00e9", "~", "a b", "a+b", "/first", "last/", "a/b/", "a&b=c?d#e",
        "%41", "A", "a'(b)!*c", "a;b:c@d,e$", "\U0001f600", "a\\b", "caf\u00e9 50%"]

endpoint = sys.argv[1]
client = boto3.client(
    "s3", endpoint_url=endpoint, region_name="eu-west-1", aws_access_key_id="key",
    aws_secret_access_key="test-secret",
    config=Config(signature_version="s3v4", s3={"addressing_style": "path"},
                  retries={"total_max_attempts": 1}))

for key in KEYS:
    body = f"content of {key}".encode()
    client.put_object(Bucket="bucket", Key=key, Body=body)
    assert client.head_object(Bucket="bucket", Key=key)["ContentLength"] == len(body), key
    assert client.get_object(Bucket="bucket", Key=key)["Body"].read() == body, key
    url = client.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": key})
    assert urllib.request.urlopen(url).read() == body, key
print("stored:", len(KEYS))
listed = client.list_objects_v2(Bucket="bucket", Prefix="a b+c/~\u00e9")["Contents"]
print("listed:", len(listed))
for key in KEYS[1:]:
    client.delete_object(Bucket="bucket", Key=key)
print("left:", [entry["Key"] for entry in client.list_objects_v2(Bucket="bucket")["Contents"]])

large = bytes(range(256)) * (12 << 12)
parts = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
client.upload_fileobj(io.BytesIO(large), "bucket", "large//~ +\u00e9", Config=parts)
got = client.get_object(Bucket="bucket", Key="large//~ +\u00e9")["Body"].read()
print("large:", got == large)
